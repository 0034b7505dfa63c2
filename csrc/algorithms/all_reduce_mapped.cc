// Zero-copy all_reduce: all inputs and outputs lie in memory that every rank has mapped. Rank r reduces share r from the
// p inputs straight into the p outputs: n read and n written a rank, two phases.
// Association: rank order, left to right; partial sums as wide as the kernel's accumulator.
#include "algorithms/rows.h"

namespace collectives {
namespace {

bool applies(const Shape& s) { return s.mapped_in && s.mapped_out && !s.scaled; }
int64_t phases(const Shape&) { return 2; }

void emit(const Shape& s, int64_t phase, PhaseSteps& out) {
    out.end_of_writes();
    if (phase == 1)
        return; // the second publication says: my share is in everybody's output
    Share share = share_of(s.count, s.rank, s.world_size, s.element_bytes);
    if (share.count == 0)
        return;
    int64_t offset = share.begin * s.element_bytes;
    out.reduce(s.world_size, s.world_size, share.count, s.out_store);
    for (int q = 0; q < s.world_size; ++q) out.ref(peer_output(q, offset));
    for (int q = 0; q < s.world_size; ++q) out.ref(peer_input(q, offset));
}

} // namespace

const Algorithm kAllReduceMapped{
    "all_reduce_mapped", Collective::all_reduce, true, false, "2 phases; reads n, writes n", applies, phases, emit};

} // namespace collectives
