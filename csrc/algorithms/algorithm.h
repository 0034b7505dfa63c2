// Algorithm: one row of the registry, and Shape, all that a row may know of a call. An algorithm is a pure function from a
// Shape and a phase number to steps. Included by algorithms and engine.
#pragma once

#include <algorithm>
#include <cstdint>

#include "algorithms/call.h"
#include "algorithms/step.h"

namespace collectives {

/// How a block travels where its memory is not mapped: staged with plain stores, staged with streaming stores, or pulled
/// out of its owner's private memory by the kernel. The bits are the same; engine/ways.h measures which is faster.
enum class Way : uint8_t { staged, streamed, pulled };
constexpr int kWayCount = 3;

/// Ways differ little below 16 KiB; from there every doubling of a block's bytes is a class of its own.
constexpr int kWayClasses = 24;
constexpr int64_t kWaysFromBytes = 16 << 10;
inline int way_class(int64_t bytes) {
    int bits = 64 - __builtin_clzll(uint64_t(bytes) | 1);
    return std::min(bits - 15, kWayClasses - 1);
}

/// The way of every class: two bits each.
class WayTable {
  public:
    WayTable() = default;
    explicit WayTable(int64_t word) : word_(uint64_t(word)) {}
    int64_t word() const { return int64_t(word_); }
    Way of(int64_t bytes) const {
        return bytes < kWaysFromBytes ? Way::staged : Way(word_ >> (2 * way_class(bytes)) & 3);
    }
    void set(int cls, Way way) { word_ = (word_ & ~(uint64_t(3) << (2 * cls))) | uint64_t(way) << (2 * cls); }

  private:
    uint64_t word_ = 0;
};

/// The facts of one call, the same on all ranks but for rank, counts of in and out, and the exchanged matrix's use.
struct Shape {
    const Call* call = nullptr;
    int rank = 0;
    int world_size = 1;
    int64_t element_bytes = 1;
    int64_t count = 0;       // all_reduce, reduce, broadcast: elements; others: the largest block
    int64_t half_bytes = 0;  // staging of one parity that a phase may use, each rank: of one lane of it
    int lanes = 1;           // into which a half is cut; phases take turns with them
    int64_t piece_bytes = 0; // preferred bytes a rank stages in one phase
    // Known after the ranks compared notes on where their buffers lie:
    bool mapped_in = false;   // every rank's input is mapped by all
    bool mapped_out = false;  // likewise output
    bool readable_in = false; // every rank's input is mapped by all, or can be pulled and is large enough for it to pay
    bool readable_out = false;           // likewise output
    int64_t pull_from_bytes = INT64_MAX; // a block from here is pulled out of its owner's private memory, and
    WayTable block_ways;                 // of a row with a table: those that this says
    int64_t own_place = 0;               // where this rank's input lies for pulling; 0: it must be staged; odd: mapped
    const int64_t* matrix = nullptr;     // every rank's table words, once they are known
    bool scaled = false;                 // premul_sum: copies into staging scale, and the own share is staged too
    kernels::Store stage_store = kernels::Store::plain; // what suits this machine's caches
    kernels::Store out_store = kernels::Store::plain;   // for the user's memory

    int64_t bytes() const { return count * element_bytes; }
    bool is_root() const { return call->root == rank; }
};

/// Rank `part`'s share of n elements: contiguous, whole cache lines where possible, the remainder on the last ranks.
struct Share {
    int64_t begin, count;
};
inline Share share_of(int64_t n, int part, int parts, int64_t element_bytes) {
    int64_t line = std::max<int64_t>(1, 64 / element_bytes);
    int64_t lines = (n + line - 1) / line;
    int64_t each = lines / parts, extra = lines % parts;
    int64_t begin = (part * each + std::min<int64_t>(part, extra)) * line;
    int64_t end = begin + (each + (part < extra ? 1 : 0)) * line;
    begin = std::min(begin, n);
    return {begin, std::min(end, n) - begin};
}
inline int64_t largest_share(int64_t n, int parts, int64_t element_bytes) {
    return share_of(n, 0, parts, element_bytes).count;
}
/// The part of a run of `count` elements that falls to piece `i` of pieces of `piece` elements.
inline Share piece_of(int64_t count, int64_t i, int64_t piece) {
    int64_t begin = std::min(count, i * piece);
    return {begin, std::min(count, begin + piece) - begin};
}

struct Algorithm {
    const char* name;
    Collective kind;
    bool mapped;      // works on the users' memory directly: its phase 0 is the one in which ranks compare notes
    bool has_table;   // shows its blocks' counts and place to all in the first phase (table_words() of them)
    const char* cost; // steps and bytes, for `collectives info --plan` and docs/algorithms.md

    /// Whether it can run this shape. The first row of the table that applies is taken.
    bool (*applies)(const Shape&);
    /// How many phases the call takes; the same on all ranks. Asked again, and the first phase emitted again, when the
    /// matrix of a row with a table is known.
    int64_t (*phases)(const Shape&);
    void (*emit)(const Shape&, int64_t phase, PhaseSteps& out);
};

extern const Algorithm* const kAlgorithms[];
extern const int kAlgorithmCount;

/// Words of one rank's table: the count of each block, where its input lies (0: nowhere that peers can reach), and the
/// ways of the blocks of the next call (rank 0's count).
inline int table_words(int world_size) { return world_size + 2; }

constexpr int64_t kInlinePayloadBytes = 48; // payload of a phase line

/// Bytes of staging that a table takes: none where it fits into the phase line.
inline int64_t table_staging_bytes(int world_size) {
    int64_t bytes = table_words(world_size) * int64_t(sizeof(int64_t));
    return bytes <= kInlinePayloadBytes ? 0 : (bytes + 63) / 64 * 64;
}

/// The row with this name, or null.
const Algorithm* find_algorithm(const char* name);

// Helpers that rows share.
inline Ref input(int64_t offset_bytes = 0, int block = 0) {
    return {Region::input, false, int16_t(block), offset_bytes};
}
inline Ref output(int64_t offset_bytes = 0, int block = 0) {
    return {Region::output, false, int16_t(block), offset_bytes};
}
inline Ref staging(int rank, int64_t offset_bytes = 0, bool previous = false) {
    return {Region::staging, previous, int16_t(rank), offset_bytes};
}
inline Ref line(int rank, int64_t offset_bytes = 0) { return {Region::line, false, int16_t(rank), offset_bytes}; }

} // namespace collectives
