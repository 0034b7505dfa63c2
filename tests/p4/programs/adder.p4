// Adds the lanes of several workers: a bitmap of who has come, one register a lane, the sum to all by multicast.
#include <core.p4>
#include <v1model.p4>

#ifndef LANES
#define LANES 4
#endif
#include "repeat.p4"

#define SLOTS 256
#define LANE_FIELD(i) bit<32> value_##i;
#define LANE_REGISTER(i) register<bit<32>>(SLOTS) value_##i;
#define LANE_STORE(i) value_##i.write(slot, lanes.value_##i);
#define LANE_ADD(i) \
    value_##i.read(sum, slot); \
    lanes.value_##i = sum + lanes.value_##i; \
    value_##i.write(slot, lanes.value_##i);

const bit<16> ADD_TYPE = 0x88B6;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> kind;
}

header add_t {
    bit<8>  slot;
    bit<8>  worker;
    bit<16> count;
}

header lanes_t {
    FOR_EACH_LANE(LANE_FIELD)
}

struct headers_t {
    ethernet_t ethernet;
    add_t      add;
    lanes_t    lanes;
}

struct metadata_t {
    bit<8>  workers;
    bit<16> group;
    bit<32> bitmap;
    bit<32> mine;
    bool    is_first;
    bool    is_last;
}

parser AddParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            ADD_TYPE: add;
            default: accept;
        }
    }
    state add {
        packet.extract(hdr.add);
        packet.extract(hdr.lanes);
        transition accept;
    }
}

control NoVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

// Who has come to a slot.
control Bitmap(in bit<32> slot, in bit<8> worker, inout metadata_t meta) {
    register<bit<32>>(SLOTS) seen;
    apply {
        bit<32> before;
        seen.read(before, slot);
        meta.mine = before & (32w1 << worker);
        meta.is_first = before == 0;
        meta.bitmap = before | (32w1 << worker);
        meta.is_last = meta.bitmap == (32w1 << meta.workers) - 1;
        seen.write(slot, meta.is_last ? 0 : meta.bitmap);
    }
}

// The sums, one register a lane.
control Pool(in bit<32> slot, in bool is_first, inout lanes_t lanes) {
    FOR_EACH_LANE(LANE_REGISTER)
    action store() {
        FOR_EACH_LANE(LANE_STORE)
    }
    action add() {
        bit<32> sum;
        FOR_EACH_LANE(LANE_ADD)
    }
    apply {
        if (is_first) {
            store();
        } else {
            add();
        }
    }
}

control AddIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Bitmap() bitmap;
    Pool() pool;

    action refuse() {
        mark_to_drop(standard);
        exit;
    }
    action admit(bit<8> workers, bit<16> group) {
        meta.workers = workers;
        meta.group = group;
    }
    table jobs {
        key = { standard.ingress_port: exact; }
        actions = { admit; refuse; }
        default_action = refuse();
        size = 64;
    }

    apply {
        if (!hdr.lanes.isValid()) {
            refuse();
        }
        jobs.apply();
        if (hdr.add.worker >= meta.workers) {
            refuse();
        }
        bit<32> slot = (bit<32>)hdr.add.slot;
        bitmap.apply(slot, hdr.add.worker, meta);
        if (meta.mine != 0) {
            refuse();
        }
        pool.apply(slot, meta.is_first, hdr.lanes);
        if (meta.is_last) {
            hdr.add.count = (bit<16>)meta.workers;
            standard.mcast_grp = meta.group;
        } else {
            mark_to_drop(standard);
        }
    }
}

control AddEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.add.worker = (bit<8>)standard.egress_rid;
    }
}

control NoCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control AddDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.add);
        packet.emit(hdr.lanes);
    }
}

V1Switch(AddParser(), NoVerify(), AddIngress(), AddEgress(), NoCompute(), AddDeparser()) main;
