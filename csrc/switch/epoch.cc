// Rows 7 and 8: is the packet's epoch one that the slot is in, or the one that it may begin? Why exactly these two, and why
// the whole number and not its last bit: docs/protocol.md, "Why it is right". Twin of p4/controls/epoch.p4.
#include "switch/visit.h"

namespace collectives::aggregation {

void epoch(Visit& visit) {
    Slot& slot = *visit.slot;
    Cell& cell = *visit.cell;
    const Cell& other = slot.cells[~visit.header.epoch & 1];
    const int32_t ahead = int32_t(visit.header.epoch - slot.current);
    if (cell.count != 0 && cell.epoch == visit.header.epoch)
        return; // seen() goes on
    if (ahead == 1 && (other.count == 0 || visit.complete(other))) {
        visit.begins = true;
        slot.current = visit.header.epoch;
        cell = Cell{};
        cell.epoch = visit.header.epoch;
        cell.chunk_id = visit.header.chunk_id;
        cell.exponent = visit.header.exponent;
        cell.next_exponent = wire::kLowestExponent;
        cell.lanes = visit.header.lanes;
        cell.lane_bits = visit.header.lane_bits;
        cell.begun_ns = visit.now_ns;
    } else {
        visit.verdict = ahead <= 0 ? Verdict::late : Verdict::early;
    }
}

} // namespace collectives::aggregation
