// Zero-copy and single-copy broadcast: every rank copies straight out of the root's memory, mapped or pulled. Two phases.
#include "algorithms/rows.h"

namespace collectives {
namespace {

bool applies(const Shape& s) { return s.readable_in; }
int64_t phases(const Shape&) { return 2; }

void emit(const Shape& s, int64_t phase, PhaseSteps& out) {
    out.end_of_writes();
    if (phase == 1)
        return; // the second publication says: I have read your input
    out.copy(output(), s.is_root() ? input() : peer_input(s.call->root, 0), s.count, s.out_store);
}

} // namespace

const Algorithm kBroadcastMapped{
    "broadcast_mapped", Collective::broadcast, true, false, "2 phases; moves 2n", applies, phases, emit};

} // namespace collectives
