// Row 9: is the packet about the same data as its cell, and has its worker come before? Twin of p4/controls/seen.p4.
#include "switch/visit.h"

namespace collectives::aggregation {

void seen(Visit& visit) {
    const Cell& cell = *visit.cell;
    const wire::PacketHeader& header = visit.header;
    if (header.chunk_id != cell.chunk_id || header.exponent != cell.exponent || header.lanes != cell.lanes ||
        header.lane_bits != cell.lane_bits)
        visit.verdict = Verdict::mismatch; // a sum of unlike things would be silent
    else if ((cell.mask & visit.mine()) != 0)
        visit.verdict = visit.complete(cell) ? Verdict::replayed : Verdict::duplicate;
}

} // namespace collectives::aggregation
