// Two lanes of an adder for the Tofino Native Architecture: only checked here, not run.
#include <core.p4>
#include <tna.p4>

typedef bit<32> value_t;
typedef bit<16> index_t;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> kind;
}

header add_t {
    index_t slot;
    bit<8>  worker;
    bit<8>  flags;
    value_t first;
    value_t second;
}

struct pair_t {
    value_t first;
    value_t second;
}

struct headers_t {
    ethernet_t ethernet;
    add_t      add;
}

struct metadata_t {
    bit<8>  seen;
    value_t sum;
}

header port_t {
    bit<64> value;
}

parser StartParser(packet_in packet, out ingress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        transition select(intrinsic.resubmit_flag) {
            0: port;
            default: reject;
        }
    }
    state port {
        port_t port = port_metadata_unpack<port_t>(packet);
        transition accept;
    }
}

parser AddIngressParser(
    packet_in packet,
    out headers_t hdr,
    out metadata_t meta,
    out ingress_intrinsic_metadata_t intrinsic) {
    StartParser() first;
    state start {
        first.apply(packet, intrinsic);
        transition ethernet;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            0x88B6: add;
            default: reject;
        }
    }
    state add {
        packet.extract(hdr.add);
        transition accept;
    }
}

control Lane(inout value_t value, in index_t index, in bit<8> seen) {
    Register<value_t, _>(1024) values;
    RegisterAction<value_t, index_t, value_t>(values) store = {
        void apply(inout value_t cell, out value_t result) {
            cell = value;
            result = cell;
        }
    };
    RegisterAction<value_t, index_t, value_t>(values) add = {
        void apply(inout value_t cell, out value_t result) {
            cell = cell + value;
            result = cell;
        }
    };
    apply {
        if (seen == 0) {
            value = store.execute(index);
        } else {
            value = add.execute(index);
        }
    }
}

control AddIngress(
    inout headers_t hdr,
    inout metadata_t meta,
    in ingress_intrinsic_metadata_t intrinsic,
    in ingress_intrinsic_metadata_from_parser_t from_parser,
    inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
    inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    Register<bit<8>, index_t>(1024, 0) bitmap;
    RegisterAction<bit<8>, index_t, bit<8>>(bitmap) mark = {
        void apply(inout bit<8> cell, out bit<8> result) {
            result = cell;
            cell = cell | hdr.add.worker;
        }
    };
    RegisterAction<bit<8>, index_t, bit<8>>(bitmap) clear = {
        void apply(inout bit<8> cell) {
            cell = 0;
        }
    };
    DirectCounter<bit<32>>(CounterType_t.PACKETS) hits;
    Counter<bit<32>, PortId_t>(512, CounterType_t.PACKETS_AND_BYTES) packets;
    Hash<bit<16>>(HashAlgorithm_t.CRC16) fold;
    Random<bit<8>>() dice;
    Lane() first;
    Lane() second;

    action drop() {
        for_deparser.drop_ctl = 1;
    }
    action replicate(MulticastGroupId_t group) {
        hits.count();
        for_tm.mcast_grp_a = group;
    }
    table last {
        key = { meta.seen: exact; hdr.add.slot: ternary; }
        actions = { replicate; drop; }
        default_action = drop();
        counters = hits;
        size = 16;
    }

    apply {
        packets.count(intrinsic.ingress_port);
        meta.seen = mark.execute(hdr.add.slot);
        first.apply(hdr.add.first, hdr.add.slot, meta.seen);
        second.apply(hdr.add.second, hdr.add.slot, meta.seen);
        hdr.add.flags = dice.get();
        for_tm.level1_mcast_hash = fold.get({ hdr.add.slot, hdr.add.worker })[12:0];
        meta.sum = max(hdr.add.first, hdr.add.second);
        last.apply();
    }
}

control AddIngressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t for_deparser) {
    Checksum() sum;
    apply {
        hdr.ethernet.kind = sum.update({ hdr.add.first, hdr.add.second });
        packet.emit(hdr);
    }
}

parser AddEgressParser(
    packet_in packet,
    out headers_t hdr,
    out metadata_t meta,
    out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        packet.advance(64);
        transition accept;
    }
}

control AddEgress(
    inout headers_t hdr,
    inout metadata_t meta,
    in egress_intrinsic_metadata_t intrinsic,
    in egress_intrinsic_metadata_from_parser_t from_parser,
    inout egress_intrinsic_metadata_for_deparser_t for_deparser,
    inout egress_intrinsic_metadata_for_output_port_t for_port) {
    apply {}
}

control AddEgressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in metadata_t meta,
    in egress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply {
        packet.emit(hdr);
    }
}

Pipeline(
    AddIngressParser(),
    AddIngress(),
    AddIngressDeparser(),
    AddEgressParser(),
    AddEgress(),
    AddEgressDeparser()) pipe;

Switch(pipe) main;
