// A switch that knows where addresses are: unicast by table, everything else to all ports but the one it came from.
#include <core.p4>
#include <v1model.p4>

typedef bit<48> mac_t;
typedef bit<9>  port_t;

header ethernet_t {
    mac_t   destination;
    mac_t   source;
    bit<16> kind;
}

header vlan_t {
    bit<3>  priority;
    bit<1>  drop_eligible;
    bit<12> id;
    bit<16> kind;
}

struct headers_t {
    ethernet_t ethernet;
    vlan_t[2]  vlan;
}

struct metadata_t {
}

parser L2Parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            0x8100 &&& 0xFFFF: vlan;
            0x88A8: vlan;
            _: accept;
        }
    }
    state vlan {
        packet.extract(hdr.vlan.next);
        transition select(hdr.vlan.last.kind) {
            0x8100: vlan;
            default: accept;
        }
    }
}

control L2Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control L2Ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets) sent;
    action forward(port_t port) {
        standard.egress_spec = port;
        sent.count();
    }
    action flood() {
        standard.mcast_grp = 1;
    }
    table addresses {
        key = { hdr.ethernet.destination: exact @name("mac"); }
        actions = { forward; flood; }
        default_action = flood();
        counters = sent;
        size = 1024;
    }
    action pop() {
        hdr.ethernet.kind = hdr.vlan[0].kind;
        hdr.vlan.pop_front(1);
    }

    apply {
        if (standard.parser_error == error.StackOutOfBounds) {
            mark_to_drop(standard);
            exit;
        }
        if (hdr.vlan[0].isValid() && hdr.vlan[0].id == 0) {
            pop();
        }
        addresses.apply();
    }
}

control L2Egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}

control L2Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control L2Deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
    }
}

V1Switch(L2Parser(), L2Verify(), L2Ingress(), L2Egress(), L2Compute(), L2Deparser()) main;
