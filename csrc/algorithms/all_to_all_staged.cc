// Staged all_to_all, even or uneven: in phase t every rank stages piece t of each block and after the wait takes piece t of
// its blocks from everybody's staging. The first phase also shows every rank's input counts: the ranks check them pairwise
// and learn how many phases there will be, with no extra exchange.
#include "algorithms/rows.h"

namespace collectives {
namespace {

// A half: one word a rank (the table), then one slot a rank.
int64_t table_bytes(const Shape& s) { return (s.world_size * int64_t(sizeof(int64_t)) + 63) / 64 * 64; }
int64_t piece(const Shape& s) { return piece_elements(s, s.half_bytes - table_bytes(s), s.world_size); }
int64_t slot(const Shape& s, int i) { return table_bytes(s) + i * piece(s) * s.element_bytes; }

int64_t phases(const Shape& s, const int64_t* matrix) {
    int64_t largest = 0;
    for (int i = 0; matrix != nullptr && i < s.world_size * s.world_size; ++i) largest = std::max(largest, matrix[i]);
    return std::max<int64_t>(1, pieces(largest, piece(s)));
}

void emit(const Shape& s, int64_t phase, PhaseSteps& out) {
    int64_t each = piece(s);
    for (int d = 1; d < s.world_size; ++d) {
        int q = (s.rank + d) % s.world_size;
        Share p = piece_of(s.call->in.count_of(q), phase, each);
        out.copy(staging(s.rank, slot(s, q)), input(p.begin * s.element_bytes, q), p.count, s.stage_store);
    }
    out.end_of_writes();
    for (int d = 0; d < s.world_size; ++d) {
        int q = (s.rank + d) % s.world_size;
        Share p = piece_of(s.call->out.count_of(q), phase, each);
        int64_t offset = p.begin * s.element_bytes;
        out.copy(output(offset, q), q == s.rank ? input(offset, q) : staging(q, slot(s, s.rank)), p.count, s.out_store);
    }
}

bool always(const Shape&) { return true; }

} // namespace

const Algorithm kAllToAllStaged{
    "all_to_all_staged", Collective::all_to_all, false, -1, "pieces phases; moves 4n - 2n/p", always, phases, emit};

} // namespace collectives
