// Row 10, all but the lanes: one more worker is in the cell; is it the last? Everything here comes out the same in whichever
// order the packets come. Twin of p4/controls/count.p4.
#include <algorithm>

#include "switch/visit.h"

namespace collectives::aggregation {

void count(Visit& visit) {
    Cell& cell = *visit.cell;
    cell.mask |= visit.mine();
    ++cell.count;
    cell.flags |=
        uint16_t(visit.header.flags & ~wire::kFlagRetransmission); // that one is of the way, not of the numbers
    cell.next_exponent = std::max(cell.next_exponent, visit.header.next_exponent);
    visit.verdict = visit.complete(cell) ? Verdict::completed : Verdict::added;
}

} // namespace collectives::aggregation
