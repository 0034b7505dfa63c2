// Computes a (op) b for a packet that says so, and answers. It looks ahead before it takes the header.
#include <core.p4>
#include <v1model.p4>

const bit<8> LETTER_P = 0x50;
const bit<8> LETTER_4 = 0x34;

enum bit<8> Operation {
    plus  = 0x2B,
    minus = 0x2D,
    both  = 0x26,
    any   = 0x7C,
    other = 0x5E
}

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> kind;
}

header check_t {
    bit<8> p;
    bit<8> four;
    bit<8> version;
}

header calculation_t {
    bit<8>    p;
    bit<8>    four;
    bit<8>    version;
    Operation operation;
    bit<32>   a;
    bit<32>   b;
    bit<32>   result;
}

struct headers_t {
    ethernet_t    ethernet;
    calculation_t calculation;
}

struct metadata_t {
}

parser CalcParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            0x1234: look;
            default: accept;
        }
    }
    state look {
        transition select(packet.lookahead<check_t>().p, packet.lookahead<check_t>().four,
                          packet.lookahead<check_t>().version) {
            (LETTER_P, LETTER_4, 1 .. 3): calculation;
            default: accept;
        }
    }
    state calculation {
        packet.extract(hdr.calculation);
        transition accept;
    }
}

control CalcVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control CalcIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action answer(in bit<32> result) {
        hdr.calculation.result = result;
        bit<48> source = hdr.ethernet.source;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = source;
        standard.egress_spec = standard.ingress_port;
    }
    action plus() { answer(hdr.calculation.a + hdr.calculation.b); }
    action minus() { answer(hdr.calculation.a - hdr.calculation.b); }
    action both() { answer(hdr.calculation.a & hdr.calculation.b); }
    action any() { answer(hdr.calculation.a | hdr.calculation.b); }
    action other() { answer(hdr.calculation.a ^ hdr.calculation.b); }
    action refuse() { mark_to_drop(standard); }

    table calculate {
        key = { hdr.calculation.operation: exact; }
        actions = { plus; minus; both; any; other; refuse; }
        const default_action = refuse();
        const entries = {
            Operation.plus:  plus();
            Operation.minus: minus();
            Operation.both:  both();
            Operation.any:   any();
            Operation.other: other();
        }
    }

    apply {
        if (hdr.calculation.isValid()) {
            calculate.apply();
        } else {
            refuse();
        }
    }
}

control CalcEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control CalcCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control CalcDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.calculation);
    }
}

V1Switch(CalcParser(), CalcVerify(), CalcIngress(), CalcEgress(), CalcCompute(), CalcDeparser()) main;
