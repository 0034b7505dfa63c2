// The controls as a pipeline of v1model. All that knows of ports and multicast groups is here and in address.p4.

control VerifyHeader(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(
            hdr.ipv4.isValid(),
            {
                hdr.ipv4.version, hdr.ipv4.header_words, hdr.ipv4.services, hdr.ipv4.total_bytes,
                hdr.ipv4.identification, hdr.ipv4.fragment_flags, hdr.ipv4.fragment_offset,
                hdr.ipv4.time_to_live, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination
            },
            hdr.ipv4.checksum,
            HashAlgorithm.csum16);
    }
}

control AggregationIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(16, CounterType.packets) verdicts;

    Lose() lose_in;
    Check() check;
    Admit() admit;
    Fence() fence;
    Slot() slot;
    Aggregate() aggregate;
    Reply() reply;

    apply {
        // A packet that nobody has decided about would leave by port 0.
        mark_to_drop(standard);
        meta.verdict = GOES_ON;

        bool is_lost = false;
        lose_in.apply(meta, standard.ingress_port, is_lost);
        if (is_lost) {
            meta.verdict = LOST;
        }
        if (meta.verdict == GOES_ON) {
            check.apply(hdr, meta, standard.packet_length, standard.checksum_error);
        }
        if (meta.verdict == GOES_ON) {
            admit.apply(hdr, meta);
        }
        if (meta.verdict == GOES_ON) {
            fence.apply(hdr, meta);
        }
        if (meta.verdict == GOES_ON) {
            slot.apply(hdr, meta);
            if (meta.verdict >= MISMATCH) {
                aggregate.apply(hdr, meta);
                if (meta.verdict != ADDED) {
                    reply.apply(hdr, meta);
                    if (meta.is_unicast) {
                        standard.egress_spec = meta.port;
                    } else {
                        standard.mcast_grp = meta.group;
                    }
                }
            }
        }
        verdicts.count((bit<32>)meta.verdict);
    }
}

control AggregationEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Address() address;
    Lose() lose_out;

    apply {
        if (!meta.is_unicast) {
            meta.receiver = standard.egress_rid;
        }
        address.apply(hdr, meta, standard);
        bool is_lost = false;
        lose_out.apply(meta, standard.egress_port, is_lost);
        if (is_lost) {
            mark_to_drop(standard);
        }
    }
}

control ComputeHeader(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(
            hdr.ipv4.isValid(),
            {
                hdr.ipv4.version, hdr.ipv4.header_words, hdr.ipv4.services, hdr.ipv4.total_bytes,
                hdr.ipv4.identification, hdr.ipv4.fragment_flags, hdr.ipv4.fragment_offset,
                hdr.ipv4.time_to_live, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination
            },
            hdr.ipv4.checksum,
            HashAlgorithm.csum16);
    }
}

control AggregationDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.aggregation);
        packet.emit(hdr.lanes);
    }
}
