// Rows 4 and 5: a packet of an earlier start of the job, or for a slot that the job was not given.
//
// Packets of a job that was killed may still be on their way when it comes back: nothing but the incarnation tells them
// from the new ones, for addresses, ports and slots are the same, and epochs begin at 1 again.

control Fence(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.aggregation.incarnation != meta.incarnation) {
            meta.verdict = STALE_INCARNATION;
        } else if (hdr.aggregation.slot >= meta.slots) {
            meta.verdict = OUTSIDE;
        } else {
            meta.slot_index = meta.base + hdr.aggregation.slot;
            // Neighbours in the registers: one shift, and a person who reads them finds both cells of a slot together.
            meta.cell_index = (meta.slot_index << 1) | (hdr.aggregation.epoch & 1);
        }
    }
}
