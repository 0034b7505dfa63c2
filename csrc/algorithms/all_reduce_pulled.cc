// Single-copy all_reduce: rank r pulls share r out of its peers' private memory piece by piece, reduces it into its own
// output, and once all have done so pulls the other shares. Three phases; nothing is staged.
// Association: rank order, left to right; partial sums as wide as the kernel's accumulator.
#include "algorithms/rows.h"

namespace collectives {
namespace {

bool applies(const Shape& s) { return s.readable_in && s.readable_out && !s.scaled; }
int64_t phases(const Shape&) { return 3; }

void emit(const Shape& s, int64_t phase, PhaseSteps& out) {
    out.end_of_writes();
    if (phase == 2)
        return; // the last publication says: I have read your output
    if (phase == 0) {
        Share share = share_of(s.count, s.rank, s.world_size, s.element_bytes);
        if (share.count == 0)
            return;
        int64_t offset = share.begin * s.element_bytes;
        out.reduce(1, s.world_size, share.count);
        out.ref(output(offset));
        for (int q = 0; q < s.world_size; ++q) out.ref(q == s.rank ? input(offset) : peer_input(q, offset));
        return;
    }
    for (int d = 1; d < s.world_size; ++d) {
        int q = (s.rank + d) % s.world_size;
        Share share = share_of(s.count, q, s.world_size, s.element_bytes);
        int64_t offset = share.begin * s.element_bytes;
        out.copy(output(offset), peer_output(q, offset), share.count);
    }
}

} // namespace

const Algorithm kAllReducePulled{"all_reduce_pulled",
                                 Collective::all_reduce,
                                 true,
                                 false,
                                 "3 phases; the kernel copies 2n - 2n/p",
                                 applies,
                                 phases,
                                 emit};

} // namespace collectives
