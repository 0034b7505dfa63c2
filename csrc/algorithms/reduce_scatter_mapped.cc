// Zero-copy and single-copy reduce_scatter: all inputs lie in memory that every rank has mapped, or can pull. Rank r reduces block r from the p inputs
// into its output: n read, n/p written a rank, two phases.
// Association: rank order, left to right; partial sums as wide as the kernel's accumulator.
#include "algorithms/rows.h"

namespace collectives {
namespace {

bool applies(const Shape& s) { return s.readable_in && !s.scaled; }
int64_t phases(const Shape&) { return 2; }

void emit(const Shape& s, int64_t phase, PhaseSteps& out) {
    out.end_of_writes();
    int64_t count = s.call->in.count_of(s.rank);
    if (phase == 1 || count == 0)
        return; // the second publication says: I have read your input
    int64_t before = 0;
    for (int q = 0; q < s.rank; ++q) before += s.call->in.count_of(q);
    out.reduce(1, s.world_size, count, s.out_store);
    out.ref(output());
    for (int q = 0; q < s.world_size; ++q) out.ref(peer_input(q, before * s.element_bytes));
}

} // namespace

const Algorithm kReduceScatterMapped{"reduce_scatter_mapped",
                                     Collective::reduce_scatter,
                                     true,
                                     false,
                                     "2 phases; reads n, writes n/p",
                                     applies,
                                     phases,
                                     emit};

} // namespace collectives
