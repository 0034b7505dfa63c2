// To whom a copy of a reply goes: each worker is a receiver with a number, which the multicast group gives as the copy's
// egress_rid, and the table of admitted workers for a reply to one. It is not the port: several workers may be behind one.
//
// UDP's checksum is 0, "none", which IPv4 permits: one over all lanes would have to be made anew for each copy, and
// Ethernet's own covers the way to the worker.

control Address(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(1, CounterType.packets) unknown;

    action send_to(bit<48> mac, bit<32> address, bit<16> udp_port, bit<48> own_mac, bit<32> own_address) {
        hdr.ethernet.destination = mac;
        hdr.ethernet.source = own_mac;
        hdr.ipv4.destination = address;
        hdr.ipv4.source = own_address;
        hdr.udp.destination_port = udp_port;
        hdr.udp.source_port = UDP_PORT;
        hdr.udp.checksum = 0;
    }

    action drop() {
        mark_to_drop(standard);
        unknown.count(0);
    }

    table receivers {
        key = {
            meta.receiver: exact @name("receiver");
        }
        actions = { send_to; drop; }
        default_action = drop();
        size = 4096;
    }

    apply {
        receivers.apply();
    }
}
