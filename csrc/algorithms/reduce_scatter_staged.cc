// Staged reduce_scatter, even or uneven: in phase t every rank stages piece t of the other ranks' blocks, and after the
// wait reduces piece t of its own block from everybody's staging. `inline` carries all blocks in the flag's line.
// Association: rank order, left to right; partial sums as wide as the kernel's accumulator.
#include "algorithms/rows.h"

namespace collectives {
namespace {

int64_t piece(const Shape& s) { return piece_elements(s, s.half_bytes, s.world_size); }

int64_t phases(const Shape& s) { return std::max<int64_t>(1, pieces(s.count, piece(s))); }

void emit(const Shape& s, int64_t phase, PhaseSteps& out) {
    const Blocks& in = s.call->in;
    int64_t slot_bytes = piece(s) * s.element_bytes;
    for (int d = 1; d <= s.world_size; ++d) {
        int q = (s.rank + d) % s.world_size;
        Share p = piece_of(in.count_of(q), phase, piece(s));
        if (q != s.rank || s.scaled)
            out.copy(staging(s.rank, q * slot_bytes), input(p.begin * s.element_bytes, q), p.count, s.stage_store);
    }
    out.end_of_writes();
    Share p = piece_of(in.count_of(s.rank), phase, piece(s));
    if (p.count == 0)
        return;
    out.reduce(1, s.world_size, p.count, s.out_store);
    out.ref(output(p.begin * s.element_bytes));
    for (int q = 0; q < s.world_size; ++q)
        out.ref(q == s.rank && !s.scaled ? input(p.begin * s.element_bytes, q) : staging(q, s.rank * slot_bytes));
}

bool always(const Shape&) { return true; }

int64_t block_offset(const Shape& s, int block) {
    int64_t elements = 0;
    for (int q = 0; q < block; ++q) elements += s.call->in.count_of(q);
    return elements * s.element_bytes;
}
bool fits_line(const Shape& s) { return block_offset(s, s.world_size) <= kInlinePayloadBytes; }
int64_t one_phase(const Shape&) { return 1; }

void emit_inline(const Shape& s, int64_t, PhaseSteps& out) {
    for (int q = 0; q < s.world_size; ++q)
        out.copy(line(s.rank, block_offset(s, q)), input(0, q), s.call->in.count_of(q));
    out.end_of_writes();
    int64_t count = s.call->in.count_of(s.rank);
    if (count == 0)
        return;
    out.reduce(1, s.world_size, count);
    out.ref(output());
    for (int q = 0; q < s.world_size; ++q) out.ref(line(q, block_offset(s, s.rank)));
}

} // namespace

const Algorithm kReduceScatterInline{"reduce_scatter_inline",
                                     Collective::reduce_scatter,
                                     false,
                                     false,
                                     "1 phase; all blocks <= 48 bytes in the flag's line",
                                     fits_line,
                                     one_phase,
                                     emit_inline};
const Algorithm kReduceScatterStaged{"reduce_scatter_staged",
                                     Collective::reduce_scatter,
                                     false,
                                     false,
                                     "pieces phases; moves 3n - n/p",
                                     always,
                                     phases,
                                     emit};

} // namespace collectives
