// Zero-copy and single-copy all_gather: each rank copies every block once, out of memory that all have mapped or out of
// its owner's private memory (pulled). Two phases.
#include "algorithms/rows.h"

namespace collectives {
namespace {

bool applies(const Shape& s) { return s.readable_in; }
int64_t phases(const Shape&) { return 2; }

void emit(const Shape& s, int64_t phase, PhaseSteps& out) {
    out.end_of_writes();
    if (phase == 1)
        return; // the second publication says: I have read your input
    for (int d = 1; d < s.world_size; ++d) {
        int q = (s.rank + d) % s.world_size;
        out.copy(output(0, q), peer_input(q, 0), s.call->out.count_of(q), s.out_store);
    }
    out.copy(output(0, s.rank), input(), s.call->out.count_of(s.rank), s.out_store);
}

} // namespace

const Algorithm kAllGatherMapped{
    "all_gather_mapped", Collective::all_gather, true, false, "2 phases; moves 2pm", applies, phases, emit};

} // namespace collectives
