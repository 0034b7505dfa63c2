// Counts packets by a key that each carries, and answers with the count so far. The smallest program with a register.
#include <core.p4>
#include <v1model.p4>

const bit<16> COUNT_TYPE = 0x88B5;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> kind;
}

header count_t {
    bit<8>  key;
    bit<32> count;
}

struct headers_t {
    ethernet_t ethernet;
    count_t    count;
}

struct metadata_t {
}

parser CountParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            COUNT_TYPE: count;
            default: accept;
        }
    }
    state count {
        packet.extract(hdr.count);
        transition accept;
    }
}

control NoVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control CountIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(256) counts;
    counter(2, CounterType.packets_and_bytes) seen;

    action reply() {
        bit<48> source = hdr.ethernet.source;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = source;
        standard.egress_spec = standard.ingress_port;
    }

    apply {
        if (!hdr.count.isValid() || standard.parser_error != error.NoError) {
            seen.count(0);
            mark_to_drop(standard);
            return;
        }
        seen.count(1);
        bit<32> so_far;
        bit<32> index = (bit<32>)hdr.count.key;
        counts.read(so_far, index);
        so_far = so_far + 1;
        counts.write(index, so_far);
        hdr.count.count = so_far;
        reply();
    }
}

control NoEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control NoCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control CountDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(CountParser(), NoVerify(), CountIngress(), NoEgress(), NoCompute(), CountDeparser()) main;
