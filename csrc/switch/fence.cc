// Rows 4 and 5: packets of an earlier start of the job, and slots that the job was not given. Twin of p4/controls/fence.p4.
#include "switch/visit.h"

namespace collectives::aggregation {

void fence(Visit& visit) {
    Job& job = *visit.job;
    if (visit.header.incarnation != job.incarnation) {
        visit.verdict = Verdict::stale_incarnation;
    } else if (visit.header.slot >= job.slots.size() || visit.header.lanes > job.most_lanes) {
        visit.verdict = Verdict::outside; // more lanes than it asked for have no place either
    } else {
        const uint32_t parity = visit.header.epoch & 1;
        visit.slot = &job.slots[visit.header.slot];
        visit.cell = &visit.slot->cells[parity];
        visit.sums = job.sums_of(visit.header.slot, parity);
    }
}

} // namespace collectives::aggregation
