// One-shot all_reduce and reduce: every rank shows its whole vector, every receiver reduces all of them in rank order.
// One phase. `inline` carries the data in the flag's own cache line, `one_shot` in staging.
// Association: rank order, left to right; partial sums as wide as the kernel's accumulator.
#include "algorithms/rows.h"

namespace collectives {
namespace {

int64_t one_phase(const Shape&) { return 1; }

/// Where rank q shows its vector.
using Place = Ref (*)(int rank);
Ref in_line(int rank) { return line(rank); }
Ref in_staging(int rank) { return staging(rank); }

void emit(const Shape& s, PhaseSteps& out, Place place, bool receives) {
    out.copy(place(s.rank), input(), s.count, place == in_line ? kernels::Store::plain : s.stage_store);
    out.end_of_writes();
    out.wait = receives ? WaitFor::all : WaitFor::nobody;
    if (!receives || s.count == 0)
        return;
    out.reduce(1, s.world_size, s.count);
    out.ref(output());
    for (int q = 0; q < s.world_size; ++q) out.ref(q == s.rank && !s.scaled ? input() : place(q));
}

bool fits_line(const Shape& s) { return s.bytes() <= kInlinePayloadBytes; }
bool fits_staging(const Shape& s) { return s.bytes() <= std::min(s.half_bytes, kOneShotBytes / s.world_size); }

void all_reduce_in_line(const Shape& s, int64_t, PhaseSteps& out) { emit(s, out, in_line, true); }
void all_reduce_in_staging(const Shape& s, int64_t, PhaseSteps& out) { emit(s, out, in_staging, true); }
void reduce_in_line(const Shape& s, int64_t, PhaseSteps& out) { emit(s, out, in_line, s.is_root()); }
void reduce_in_staging(const Shape& s, int64_t, PhaseSteps& out) { emit(s, out, in_staging, s.is_root()); }

constexpr const char* kLineCost = "1 phase; n <= 48 bytes in the flag's line";
constexpr const char* kStagingCost = "1 phase; writes n, reads p n";

} // namespace

const Algorithm kAllReduceInline{"all_reduce_inline", Collective::all_reduce, false, false, kLineCost, fits_line,
                                 one_phase,           all_reduce_in_line};
const Algorithm kAllReduceOneShot{"all_reduce_one_shot", Collective::all_reduce, false,     false,
                                  kStagingCost,          fits_staging,           one_phase, all_reduce_in_staging};
const Algorithm kReduceInline{"reduce_inline", Collective::reduce, false,     false,
                              kLineCost,       fits_line,          one_phase, reduce_in_line};
const Algorithm kReduceOneShot{"reduce_one_shot", Collective::reduce, false,     false,
                               kStagingCost,      fits_staging,       one_phase, reduce_in_staging};

} // namespace collectives
