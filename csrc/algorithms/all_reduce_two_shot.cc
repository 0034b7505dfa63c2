// Two-shot all_reduce and reduce, pipelined: the vector is cut in p shares, rank r reduces share r. In phase t every rank
// stages piece t of the others' shares and reduces piece t-1 of its own, and after the wait collects piece t-1 of the
// results. pieces + 1 phases. Own data is never staged (except when premul_sum must scale it).
// Association: rank order, left to right; partial sums as wide as the kernel's accumulator.
#include "algorithms/rows.h"

namespace collectives {
namespace {

// A staging half: slot q holds a piece of share q; slot r of rank r, which nobody needs, its result; slot p its own
// scaled data.
int64_t piece(const Shape& s) { return piece_elements(s, s.half_bytes, s.world_size + (s.scaled ? 1 : 0)); }
int64_t slot(const Shape& s, int i) { return i * piece(s) * s.element_bytes; }

int64_t phases(const Shape& s) { return 1 + pieces(largest_share(s.count, s.world_size, s.element_bytes), piece(s)); }

Share part(const Shape& s, int rank, int64_t i) { // piece i of a rank's share, in elements of the vector
    Share share = share_of(s.count, rank, s.world_size, s.element_bytes);
    Share p = piece_of(share.count, i, piece(s));
    return {share.begin + p.begin, p.count};
}

void stage(const Shape& s, int64_t i, PhaseSteps& out) {
    for (int d = 1; d <= s.world_size; ++d) { // start behind the own rank: spreads the readers
        int q = (s.rank + d) % s.world_size;
        if (q == s.rank && !s.scaled)
            continue;
        Share p = part(s, q, i);
        int place = q == s.rank ? s.world_size : q;
        out.copy(staging(s.rank, slot(s, place)), input(p.begin * s.element_bytes), p.count, s.stage_store);
    }
}

void reduce_own(const Shape& s, int64_t i, bool wanted_here, bool wanted_elsewhere, PhaseSteps& out) {
    Share p = part(s, s.rank, i);
    if (p.count == 0)
        return;
    out.reduce(int(wanted_here) + int(wanted_elsewhere), s.world_size, p.count);
    if (wanted_here)
        out.ref(output(p.begin * s.element_bytes));
    if (wanted_elsewhere)
        out.ref(staging(s.rank, slot(s, s.rank)));
    for (int q = 0; q < s.world_size; ++q) {
        if (q != s.rank)
            out.ref(staging(q, slot(s, s.rank), true));
        else
            out.ref(s.scaled ? staging(q, slot(s, s.world_size), true) : input(p.begin * s.element_bytes));
    }
}

void emit(const Shape& s, int64_t phase, PhaseSteps& out, bool rooted) {
    bool receives = !rooted || s.is_root();
    stage(s, phase, out);
    if (phase > 0)
        reduce_own(s, phase - 1, receives, !rooted || !s.is_root(), out);
    out.end_of_writes();
    for (int d = 1; d < s.world_size && receives && phase > 0; ++d) {
        int q = (s.rank + d) % s.world_size;
        Share p = part(s, q, phase - 1);
        out.copy(output(p.begin * s.element_bytes), staging(q, slot(s, q)), p.count, s.out_store);
    }
}

bool always(const Shape&) { return true; }
void emit_all(const Shape& s, int64_t phase, PhaseSteps& out) { emit(s, phase, out, false); }
void emit_rooted(const Shape& s, int64_t phase, PhaseSteps& out) { emit(s, phase, out, true); }

} // namespace

const Algorithm kAllReduceTwoShot{"all_reduce_two_shot",
                                  Collective::all_reduce,
                                  false,
                                  false,
                                  "pieces + 1 phases; moves 5n - 2n/p",
                                  always,
                                  phases,
                                  emit_all};
const Algorithm kReduceTwoShot{"reduce_two_shot", Collective::reduce, false, false, "pieces + 1 phases", always, phases,
                               emit_rooted};

} // namespace collectives
