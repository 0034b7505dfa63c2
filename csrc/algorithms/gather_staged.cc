// Staged gather, pipelined: every rank but the root stages piece t of its block, the root copies them out.
#include "algorithms/rows.h"

namespace collectives {
namespace {

int64_t piece(const Shape& s) { return piece_elements(s, s.half_bytes, 1); }

int64_t phases(const Shape& s) { return std::max<int64_t>(1, pieces(s.count, piece(s))); }

void emit(const Shape& s, int64_t phase, PhaseSteps& out) {
    Share p = piece_of(s.count, phase, piece(s));
    int64_t offset = p.begin * s.element_bytes;
    if (!s.is_root())
        out.copy(staging(s.rank), input(offset), p.count, s.stage_store);
    out.end_of_writes();
    out.wait = s.is_root() ? WaitFor::all : WaitFor::nobody;
    for (int q = 0; q < s.world_size && s.is_root(); ++q)
        out.copy(output(offset, q), q == s.rank ? input(offset) : staging(q), p.count, s.out_store);
}

bool always(const Shape&) { return true; }

} // namespace

const Algorithm kGatherStaged{
    "gather_staged", Collective::gather, false, false, "pieces phases; the root moves 2pm", always, phases, emit};

} // namespace collectives
