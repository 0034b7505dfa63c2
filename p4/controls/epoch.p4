// Rows 7 and 8: is the packet's epoch one that the slot is in, or the one that it may begin? No state of its own: slot.p4
// brings it, and takes it back.
//
// Two epochs are alive: `current`, and the one before, whose result somebody may still have to ask for again. The cell of
// current + 1 is that of current - 1; it may be taken as soon as the current cell is complete, for then all workers have
// sent `current`, hence had the result of current - 1 (docs/protocol.md, "Why it is right").
//
// The whole number is compared, not its last bit: with one bit only, a late copy of a packet of `current - 2` would pass
// for one of `current`, and old numbers would be added to new ones.

control Epoch(inout headers_t hdr, inout metadata_t meta) {
    apply {
        bit<32> ahead = hdr.aggregation.epoch - meta.current;
        meta.begins = false;
        if (meta.cell.count != 0 && meta.cell.epoch == hdr.aggregation.epoch) {
            // The cell is in this epoch: seen.p4 goes on.
        } else if (ahead == 1 && (meta.other_count == meta.workers || meta.other_count == 0)) {
            // The other cell is the current one: complete, or (count 0) never begun, which is as good.
            meta.begins = true;
            meta.cell.epoch = hdr.aggregation.epoch;
            meta.cell.chunk_id = hdr.aggregation.chunk_id;
            meta.cell.exponent = hdr.aggregation.exponent;
            meta.cell.mask = 0;
            meta.cell.count = 0;
            meta.cell.flags = 0;
            meta.cell.next_exponent = LOWEST_EXPONENT;
        } else if (ahead == 0 || ahead[31:31] == 1) {
            meta.verdict = LATE;
        } else {
            meta.verdict = EARLY;
        }
    }
}
