// What a reply says: the slot's own numbers, and nothing of the packet that caused it. If the tags of a request were
// echoed, the sum of an old epoch would pass for the one that was asked for.
//
// magic, version, lanes, lane_bits, slot, job and incarnation stay as they are: that they are the slot's own is what
// parse.p4, fence.p4 and slot.p4 have made sure of. auth is 0, which says "no tag": this switch has no key.

control Reply(inout headers_t hdr, inout metadata_t meta) {
    apply {
        meta.is_unicast = meta.verdict == REPLAYED;
        hdr.aggregation.kind = KIND_RESULT;
        hdr.aggregation.flags = meta.cell.flags | meta.overflow;
        if (meta.verdict == MISMATCH) {
            hdr.aggregation.kind = KIND_MISMATCH;
        } else if (meta.verdict == REPLAYED) {
            hdr.aggregation.flags = hdr.aggregation.flags | FLAG_RETRANSMISSION;
        }
        hdr.aggregation.epoch = meta.cell.epoch;
        hdr.aggregation.chunk_id = meta.cell.chunk_id;
        hdr.aggregation.mask = meta.cell.mask;
        hdr.aggregation.exponent = meta.cell.exponent;
        hdr.aggregation.next_exponent = meta.cell.next_exponent;
        hdr.aggregation.worker = FROM_SWITCH;
        hdr.aggregation.count = meta.cell.count;
        hdr.aggregation.auth = 0;

        // A packet of the switch's own, not one passed on.
        hdr.ipv4.services = 0;
        hdr.ipv4.identification = 0;
        hdr.ipv4.fragment_flags = DO_NOT_FRAGMENT;
        hdr.ipv4.time_to_live = TIME_TO_LIVE;
    }
}
