// Staged scatter, pipelined: the root stages piece t of every block, each rank copies its own out.
#include "algorithms/rows.h"

namespace collectives {
namespace {

int64_t piece(const Shape& s) { return piece_elements(s, s.half_bytes, s.world_size); }

int64_t phases(const Shape& s) { return std::max<int64_t>(1, pieces(s.count, piece(s))); }

void emit(const Shape& s, int64_t phase, PhaseSteps& out) {
    Share p = piece_of(s.count, phase, piece(s));
    int64_t offset = p.begin * s.element_bytes, slot_bytes = piece(s) * s.element_bytes;
    for (int q = 0; q < s.world_size && s.is_root(); ++q)
        if (q != s.rank)
            out.copy(staging(s.rank, q * slot_bytes), input(offset, q), p.count, s.stage_store);
        else
            out.copy(output(offset), input(offset, q), p.count, s.out_store);
    out.end_of_writes();
    out.wait = s.is_root() ? WaitFor::nobody : WaitFor::root;
    if (!s.is_root())
        out.copy(output(offset), staging(s.call->root, s.rank * slot_bytes), p.count, s.out_store);
}

bool always(const Shape&) { return true; }

} // namespace

const Algorithm kScatterStaged{
    "scatter_staged", Collective::scatter, false, false, "pieces phases; the root moves 2pm", always, phases, emit};

} // namespace collectives
