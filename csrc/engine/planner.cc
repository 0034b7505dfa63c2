// The planner: from a call to a shape, from a shape to a row of the algorithm table. Pure functions, no I/O.
#include <cstring>

#include "engine/operation.h"

namespace collectives {
namespace {

bool reduces(Collective kind) {
    return kind == Collective::all_reduce || kind == Collective::reduce_scatter || kind == Collective::reduce;
}
bool rooted(Collective kind) {
    return kind == Collective::broadcast || kind == Collective::reduce || kind == Collective::gather ||
           kind == Collective::scatter;
}
/// The side whose block sizes all ranks know alike; null for all_to_all (checked pairwise) and barrier.
const Blocks* common_side(const Call& call, int* blocks, int rank, int world_size) {
    *blocks = 1;
    switch (call.kind) {
    case Collective::reduce_scatter: *blocks = world_size; return &call.in;
    case Collective::all_gather: *blocks = world_size; return &call.out;
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
    case Collective::gather: return &call.in;
    case Collective::scatter: return call.root == rank ? &call.in : &call.out;
    case Collective::all_to_all:
    case Collective::barrier: return nullptr;
    }
    return nullptr;
}
constexpr int64_t kLanesFromBytes = 12 << 10;
constexpr int kMostLanes = 8;

/// Bytes that a rank stages of a call; of all_to_all, whose blocks only their ranks know, what it may stage at a time.
int64_t staged_bytes(const Shape& s) {
    bool a_block_for_each = s.call->kind == Collective::reduce_scatter || s.call->kind == Collective::scatter;
    return s.call->kind == Collective::all_to_all ? 96 << 10 : s.bytes() * (a_block_for_each ? s.world_size : 1);
}

/// Middle-sized messages take turns with parts of the half. Staging that is written again at once lies in the writer's
/// first-level cache, from where a peer gets it at half the speed of the second level (14 against 18 GB/s at 32 KiB on
/// an Intel server processor), and it is as slow to take back (13 against 23 GB/s).
int lanes_of(const Shape& s, int64_t half_bytes) {
    int64_t bytes = staged_bytes(s);
    if (bytes < kLanesFromBytes)
        return 1;
    bytes += 128 * (s.world_size + 1); // shares and slots are rounded to lines, and there may be a table
    int lanes = 1;
    while (lanes < kMostLanes && half_bytes / (2 * lanes) >= bytes) lanes *= 2;
    return lanes;
}

uint64_t mix(uint64_t h, uint64_t value) {
    h = (h ^ value) * 0x9e3779b97f4a7c15ull;
    return h ^ (h >> 29);
}

} // namespace

uint64_t signature_of(const Call& call, int rank, int world_size) {
    uint64_t op = reduces(call.kind) ? uint64_t(call.op) : 255;
    uint64_t root = rooted(call.kind) ? uint64_t(call.root) : 0xffff;
    uint64_t h = mix(0x13198a2e03707344ull, uint64_t(call.kind) | uint64_t(call.dtype) << 8 | op << 16 | root << 24);
    int blocks;
    const Blocks* side = common_side(call, &blocks, rank, world_size);
    for (int i = 0; side != nullptr && i < blocks; ++i) {
        h = mix(h, uint64_t(side->count_of(i)));
        if (side->counts == nullptr) // even: the same for given equal counts
            for (int j = 1; j < blocks; ++j) h = mix(h, uint64_t(side->count));
        if (side->counts == nullptr)
            break;
    }
    return h;
}

Shape shape_of(const Call& call, int rank, int world_size, int64_t half_bytes, const PlannerConfig& config) {
    Shape s;
    s.call = &call;
    s.rank = rank;
    s.world_size = world_size;
    s.element_bytes = int64_t(size_of(call.dtype));
    int blocks;
    if (const Blocks* side = common_side(call, &blocks, rank, world_size))
        for (int i = 0; i < (side->counts ? blocks : 1); ++i) s.count = std::max(s.count, side->count_of(i));
    s.lanes = lanes_of(s, half_bytes);
    s.half_bytes = s.lanes == 1 ? half_bytes : half_bytes / s.lanes / 64 * 64;
    s.piece_bytes = config.piece_bytes;
    s.scaled = reduces(call.kind) && call.op == ReduceOp::premul_sum;
    s.stage_store = config.stage_store;
    s.pull_from_bytes = config.pull_from_bytes;
    int64_t whole =
        s.bytes() * (call.kind == Collective::all_gather || call.kind == Collective::reduce_scatter ? world_size : 1);
    if (call.kind == Collective::all_to_all)
        for (int i = 0; i < world_size; ++i) whole += call.out.count_of(i) * s.element_bytes;
    // In place, the lines were just read: plain stores find them in the cache. Elsewhere a plain store would first fetch
    // the line that it overwrites.
    bool in_place = call.in.base != nullptr && call.in.base == call.out.base;
    s.out_store = whole >= config.streaming_from_bytes && !in_place ? kernels::Store::streaming : kernels::Store::plain;
    return s;
}

Label label_of(const Call& call, int rank, int world_size, uint64_t sequence) {
    int blocks = 1;
    int64_t count = 0;
    if (const Blocks* side = common_side(call, &blocks, rank, world_size))
        for (int i = 0; i < (side->counts ? blocks : 1); ++i) count = std::max(count, side->count_of(i));
    return {&call, signature_of(call, rank, world_size), sequence, rank, count};
}

int64_t pull_unit_bytes(const Shape& shape) {
    return shape.call->kind == Collective::all_reduce ? shape.bytes() / shape.world_size : shape.bytes();
}

bool can_take_notes(const Shape& shape, const PlannerConfig& config) {
    if (shape.scaled || (config.forced != nullptr && config.forced->kind == shape.call->kind && !config.forced->mapped))
        return false;
    for (int i = 0; i < kAlgorithmCount; ++i)
        if (kAlgorithms[i]->kind == shape.call->kind && kAlgorithms[i]->mapped)
            return true;
    return false;
}

bool wants_notes(const Shape& shape, const PlannerConfig& config) {
    int64_t bytes = shape.bytes() * (shape.call->kind == Collective::reduce_scatter ? shape.world_size : 1);
    return (bytes >= config.mapped_from_bytes || pull_unit_bytes(shape) >= shape.pull_from_bytes) &&
           can_take_notes(shape, config);
}

const Algorithm* choose_algorithm(const Shape& shape, const PlannerConfig& config) {
    if (config.forced != nullptr && config.forced->kind == shape.call->kind && config.forced->applies(shape))
        return config.forced;
    for (int i = 0; i < kAlgorithmCount; ++i)
        if (kAlgorithms[i]->kind == shape.call->kind && kAlgorithms[i]->applies(shape))
            return kAlgorithms[i];
    return nullptr;
}

std::string describe(const Call& call, int rank) {
    int blocks;
    const Blocks* side = common_side(call, &blocks, rank, 1);
    std::string text = collective_name(call.kind);
    if (call.kind == Collective::barrier)
        return text;
    text += std::string(" of ") + info(call.dtype).name;
    if (side != nullptr && side->counts == nullptr)
        text += "[" + std::to_string(side->count) + "]";
    if (reduces(call.kind))
        text += std::string(", ") + name_of(call.op);
    if (rooted(call.kind))
        text += ", root " + std::to_string(call.root);
    return text;
}

} // namespace collectives
