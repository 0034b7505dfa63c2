// Call: one collective operation as its caller describes it, before any plan. Plain data, no ownership.
// Included by the algorithms, the engine and the bindings.
#pragma once

#include <cstdint>

#include "types/dtype.h"
#include "types/reduce_op.h"

namespace collectives {

enum class Collective : uint8_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    all_to_all,
    broadcast,
    reduce,
    gather,
    scatter,
    barrier,
};
constexpr int kCollectiveCount = 9;

const char* collective_name(Collective kind);

/// One side (input or output) of an operation: one block, or one block a rank.
///
/// Block i has counts[i] elements (or `count`, when counts is null) and starts at ptrs[i], or, when ptrs is null, right
/// after block i-1, the first at base. Counts are elements of the call's dtype, never bytes.
struct Blocks {
    void* base = nullptr;
    void* const* ptrs = nullptr;
    const int64_t* counts = nullptr;
    int64_t count = 0;

    int64_t count_of(int i) const { return counts ? counts[i] : count; }
};

/// What each collective reads and writes (p = world size, r = this rank):
///
/// | kind           | in                              | out                                        |
/// |----------------|---------------------------------|--------------------------------------------|
/// | all_reduce     | 1 block                         | 1 block; may be the same memory            |
/// | reduce_scatter | p blocks                        | 1 block, of the size of in's block r       |
/// | all_gather     | 1 block, size of out's block r  | p blocks                                   |
/// | all_to_all     | p blocks                        | p blocks                                   |
/// | broadcast      | 1 block (read at the root)      | 1 block (written elsewhere); may be in     |
/// | reduce         | 1 block                         | 1 block (written at the root)              |
/// | gather         | 1 block                         | p blocks (written at the root)             |
/// | scatter        | p blocks (read at the root)     | 1 block                                    |
/// | barrier        | -                               | -                                          |
///
/// `in` and `out` may be the same memory only where block addresses are exactly equal (in place); a partial overlap is
/// refused. reduce_scatter's and all_gather's counts must be the same on all ranks; all_to_all's are checked pairwise.
struct Call {
    Collective kind = Collective::barrier;
    DType dtype = DType::u8;
    ReduceOp op = ReduceOp::sum;
    int root = 0;
    double factor_re = 1.0; // premul_sum: this rank's factor
    double factor_im = 0.0;
    Blocks in;
    Blocks out;
};

} // namespace collectives
