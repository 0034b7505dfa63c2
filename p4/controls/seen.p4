// Row 9: the packet's epoch is one of the slot's. Is it about the same data as the cell, and has its worker come before?
//
// Different data in one cell would be a sum of unlike things, silently: it is an error, and told to all workers, since any
// of them may be the one that is wrong. The cell keeps what it has. Lanes and their width are the build's here, so that
// parse.p4 has settled them.
//
// A worker that has come before repeats its packet because it has no result. Either there is none yet, then the packet says
// nothing new; or it was lost, then this worker alone gets it again: the others have it, or will ask.

control Seen(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.aggregation.chunk_id != meta.cell.chunk_id || hdr.aggregation.exponent != meta.cell.exponent) {
            meta.verdict = MISMATCH;
        } else if ((meta.cell.mask & meta.mine) != 0) {
            if (meta.cell.count == meta.workers) {
                meta.verdict = REPLAYED;
            } else {
                meta.verdict = DUPLICATE;
            }
        }
    }
}
