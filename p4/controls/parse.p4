// From bytes to headers. Only an update of this build (its magic, version, number and width of lanes) gets as far as the
// lanes; so hdr.lanes is valid for nothing else, and check.p4 need ask only that. A packet that ends too early leaves the
// header that it ends in invalid.
//
// A target has no "reject" that could be relied on (BMv2 refuses the word): what is not ours is accepted, and dropped
// with its counter by the ingress.

parser AggregationParser(
    packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            TYPE_IPV4: ipv4;
            default: accept;
        }
    }

    // Five words: no options. Fragments are refused: the rest of one has no header of ours, and the first has not all
    // of the lanes. The mask leaves out "do not fragment", which a sender may set or not.
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(
            hdr.ipv4.version, hdr.ipv4.header_words, hdr.ipv4.fragment_flags, hdr.ipv4.fragment_offset,
            hdr.ipv4.protocol) {
            (4, 5, 0 &&& 5, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination_port) {
            UDP_PORT: aggregation;
            default: accept;
        }
    }

    state aggregation {
        packet.extract(hdr.aggregation);
        transition select(
            hdr.aggregation.magic, hdr.aggregation.version, hdr.aggregation.kind, hdr.aggregation.lanes,
            hdr.aggregation.lane_bits) {
            (MAGIC, VERSION, KIND_UPDATE, LANES, LANE_BITS): lanes;
            default: accept;
        }
    }

    state lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }
}
