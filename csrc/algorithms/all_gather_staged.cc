// Staged all_gather, even or uneven: in phase t every rank stages piece t of its block, and after the wait copies piece t
// of everybody's. `inline` carries the block in the flag's line.
#include "algorithms/rows.h"

namespace collectives {
namespace {

int64_t piece(const Shape& s) { return piece_elements(s, s.half_bytes, 1); }

int64_t phases(const Shape& s) { return std::max<int64_t>(1, pieces(s.count, piece(s))); }

void emit(const Shape& s, int64_t phase, int64_t piece, Ref (*place)(int), kernels::Store store, PhaseSteps& out) {
    Share own = piece_of(s.call->out.count_of(s.rank), phase, piece);
    int64_t offset = own.begin * s.element_bytes;
    out.copy(place(s.rank), input(offset), own.count, store);
    out.end_of_writes();
    out.copy(output(offset, s.rank), input(offset), own.count, s.out_store);
    for (int d = 1; d < s.world_size; ++d) {
        int q = (s.rank + d) % s.world_size;
        Share p = piece_of(s.call->out.count_of(q), phase, piece);
        out.copy(output(p.begin * s.element_bytes, q), place(q), p.count, s.out_store);
    }
}

Ref in_line(int rank) { return line(rank); }
Ref in_staging(int rank) { return staging(rank); }

bool fits_line(const Shape& s) { return s.bytes() <= kInlinePayloadBytes; }
bool always(const Shape&) { return true; }
int64_t one_phase(const Shape&) { return 1; }
void emit_inline(const Shape& s, int64_t phase, PhaseSteps& out) {
    emit(s, phase, kInlinePayloadBytes, in_line, kernels::Store::plain, out);
}
void emit_staged(const Shape& s, int64_t phase, PhaseSteps& out) {
    emit(s, phase, piece(s), in_staging, s.stage_store, out);
}

} // namespace

const Algorithm kAllGatherInline{"all_gather_inline",
                                 Collective::all_gather,
                                 false,
                                 false,
                                 "1 phase; a block <= 48 bytes in the flag's line",
                                 fits_line,
                                 one_phase,
                                 emit_inline};
const Algorithm kAllGatherStaged{
    "all_gather_staged", Collective::all_gather, false, false, "pieces phases; moves 2pm + 2m", always, phases,
    emit_staged};

} // namespace collectives
