// Staged broadcast, pipelined: the root stages piece t, the others copy it out. `inline` carries the data in the flag's
// line. Only the root is waited for; the root itself runs at most one phase ahead of the slowest reader.
#include "algorithms/rows.h"

namespace collectives {
namespace {

int64_t piece(const Shape& s) { return piece_elements(s, s.half_bytes, 1); }

int64_t phases(const Shape& s) { return std::max<int64_t>(1, pieces(s.count, piece(s))); }

void emit(const Shape& s, int64_t phase, int64_t piece, Ref place, kernels::Store store, PhaseSteps& out) {
    Share p = piece_of(s.count, phase, piece);
    int64_t offset = p.begin * s.element_bytes;
    if (s.is_root()) {
        out.copy(place, input(offset), p.count, store);
        out.copy(output(offset), input(offset), p.count, s.out_store); // nothing to do in place
    }
    out.end_of_writes();
    out.wait = s.is_root() ? WaitFor::nobody : WaitFor::root;
    if (!s.is_root())
        out.copy(output(offset), place, p.count, s.out_store);
}

bool fits_line(const Shape& s) { return s.bytes() <= kInlinePayloadBytes; }
bool always(const Shape&) { return true; }
int64_t one_phase(const Shape&) { return 1; }
void emit_inline(const Shape& s, int64_t phase, PhaseSteps& out) {
    emit(s, phase, kInlinePayloadBytes, line(s.call->root), kernels::Store::plain, out);
}
void emit_staged(const Shape& s, int64_t phase, PhaseSteps& out) {
    emit(s, phase, piece(s), staging(s.call->root), s.stage_store, out);
}

} // namespace

const Algorithm kBroadcastInline{"broadcast_inline",
                                 Collective::broadcast,
                                 false,
                                 false,
                                 "1 phase; n <= 48 bytes in the flag's line",
                                 fits_line,
                                 one_phase,
                                 emit_inline};
const Algorithm kBroadcastStaged{
    "broadcast_staged", Collective::broadcast, false, false, "pieces phases; moves 2n", always, phases, emit_staged};

} // namespace collectives
