// Row 10, all but the lanes: one more worker is in the cell. Is it the last?
//
// Everything here is the same in whichever order the packets come (or, the larger, plus one), and so is the result.

control Count(inout headers_t hdr, inout metadata_t meta) {
    apply {
        meta.cell.mask = meta.cell.mask | meta.mine;
        meta.cell.count = meta.cell.count + 1;
        // Whether a packet was repeated on its way says nothing about the numbers.
        meta.cell.flags = meta.cell.flags | (hdr.aggregation.flags & ~FLAG_RETRANSMISSION);
        // Signed, by turning over the sign bits.
        if ((hdr.aggregation.next_exponent ^ SIGN_16) > (meta.cell.next_exponent ^ SIGN_16)) {
            meta.cell.next_exponent = hdr.aggregation.next_exponent;
        }
        if (meta.cell.count == meta.workers) {
            meta.verdict = COMPLETED;
        } else {
            meta.verdict = ADDED;
        }
    }
}
