// Staged all_to_all, even or uneven: in phase t every rank stages piece t of each block and after the wait takes piece t of
// its blocks from everybody's staging. The first phase also shows every rank's input counts: the ranks check them pairwise
// and learn how many phases there will be, with no extra exchange. Blocks that are large enough for it to pay are not
// staged: their receiver pulls them out of the sender's private (or shared) memory.
#include "algorithms/rows.h"

namespace collectives {
namespace {

// A half: the table (where it does not fit into the line), then one slot a rank.
int64_t table_bytes(const Shape& s) { return table_staging_bytes(s.world_size); }
int64_t piece(const Shape& s) { return piece_elements(s, s.half_bytes - table_bytes(s), s.world_size); }
int64_t slot(const Shape& s, int i) { return table_bytes(s) + i * piece(s) * s.element_bytes; }

constexpr int64_t kMappedFromBytes = 2 << 10; // below, the closing phase costs more than the copy into staging

const int64_t* row(const Shape& s, int q) { return s.matrix + q * table_words(s.world_size); }
/// Whether a block of `count` elements, from a rank whose input lies at `place`, is pulled by its receiver.
bool is_pulled(const Shape& s, int64_t count, int64_t place) {
    int64_t bytes = count * s.element_bytes;
    bool mapped = (place & 1) != 0;
    return place != 0 && (bytes >= s.pull_from_bytes || s.block_ways.of(bytes) == Way::pulled ||
                          (mapped && bytes >= kMappedFromBytes));
}

int64_t phases(const Shape& s) {
    int64_t largest_staged = 0;
    bool pulls = false;
    for (int q = 0; s.matrix != nullptr && q < s.world_size; ++q)
        for (int r = 0; r < s.world_size; ++r) {
            int64_t count = row(s, q)[r];
            if (q == r)
                continue;
            if (is_pulled(s, count, row(s, q)[s.world_size]))
                pulls = true;
            else
                largest_staged = std::max(largest_staged, count);
        }
    // After pulling, one phase more: its publication says that I have read your input.
    return std::max<int64_t>(1, pieces(largest_staged, piece(s))) + (pulls ? 1 : 0);
}

void take(const Shape& s, int q, int64_t phase, PhaseSteps& out) {
    int64_t count = s.call->out.count_of(q);
    if (q == s.rank) {
        if (phase == 0)
            out.copy(output(0, q), input(0, q), count, s.out_store);
        return;
    }
    if (is_pulled(s, count, row(s, q)[s.world_size])) {
        int64_t before = 0;
        for (int r = 0; r < s.rank; ++r) before += row(s, q)[r];
        if (phase == 0)
            out.copy(output(0, q), peer_input(q, before * s.element_bytes), count, s.out_store);
        return;
    }
    Share p = piece_of(count, phase, piece(s));
    int64_t offset = p.begin * s.element_bytes;
    out.copy(output(offset, q), staging(q, slot(s, s.rank)), p.count, s.out_store);
}

void emit(const Shape& s, int64_t phase, PhaseSteps& out) {
    for (int d = 1; d < s.world_size; ++d) {
        int q = (s.rank + d) % s.world_size;
        int64_t count = s.call->in.count_of(q);
        if (is_pulled(s, count, s.own_place))
            continue;
        bool streamed = s.block_ways.of(count * s.element_bytes) == Way::streamed;
        Share p = piece_of(count, phase, piece(s));
        out.copy(staging(s.rank, slot(s, q)), input(p.begin * s.element_bytes, q), p.count,
                 streamed ? kernels::Store::streaming : s.stage_store);
    }
    out.end_of_writes();
    for (int d = 0; d < s.world_size && s.matrix != nullptr; ++d) take(s, (s.rank + d) % s.world_size, phase, out);
}

bool always(const Shape&) { return true; }

} // namespace

const Algorithm kAllToAllStaged{"all_to_all_staged",
                                Collective::all_to_all,
                                false,
                                true,
                                "pieces phases; moves 4n - 2n/p; large blocks are pulled: 2n",
                                always,
                                phases,
                                emit};

} // namespace collectives
