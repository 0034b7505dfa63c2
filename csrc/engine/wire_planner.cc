// Comparing algorithms by their predicted time. See wire_planner.h.
#include "engine/wire_planner.h"

#include <cmath>

#include "engine/operation.h"

namespace collectives {
namespace {

constexpr int kClassesPerDoubling = 8;

/// Calls whose sizes differ by less than a tenth are planned alike.
int size_class(int64_t bytes) { return bytes <= 1 ? 0 : int(kClassesPerDoubling * std::log2(double(bytes)) + 1e-9); }

/// The same call with the least size of its class: powers of two stand for themselves.
Shape representative(const Shape& shape) {
    Shape s = shape;
    double bytes = std::exp2(double(size_class(shape.bytes())) / kClassesPerDoubling);
    if (shape.count > 0)
        s.count = std::max<int64_t>(1, std::llround(bytes) / shape.element_bytes);
    return s;
}

uint64_t key_of(const Shape& s) {
    return uint64_t(s.call->kind) | uint64_t(s.call->dtype) << 8 | uint64_t(s.count > 0) << 16 |
           uint64_t(s.call->in.counts != nullptr || s.call->out.counts != nullptr) << 17 |
           uint64_t(size_class(s.bytes())) << 18;
}

} // namespace

Shape wire_shape_of(const Call& call, int rank, int world_size, const PlannerConfig& config) {
    Shape shape = shape_of(call, rank, world_size, 1 << 20, config);
    shape.piece_bytes = config.wire_piece_bytes;
    if (call.kind == Collective::all_to_all && call.in.counts == nullptr && call.out.counts == nullptr)
        shape.count = call.in.count;
    return shape;
}

double WirePlanner::predict(const WireAlgorithm& row, const Shape& shape) const {
    double ns = predict_ns(programs_of_all(row, shape), shape.element_bytes, profile_.costs);
    auto correction = profile_.corrections.find(row.name);
    return correction == profile_.corrections.end() ? ns : ns * correction->second.at(shape.bytes());
}

const std::vector<WireCandidate>& WirePlanner::candidates(const Shape& shape) {
    // By the class alone: what was asked before must not make a difference, for ranks may ask differently.
    std::vector<WireCandidate>& found = known_[key_of(shape)];
    if (found.empty())
        for (int i = 0; i < kWireAlgorithmCount; ++i)
            if (const WireAlgorithm& row = *kWireAlgorithms[i];
                row.kind == shape.call->kind && row.applies(representative(shape)))
                found.push_back({&row, predict(row, representative(shape))});
    return found;
}

const WireAlgorithm* WirePlanner::choose(const Shape& shape, bool rank_order, const WireAlgorithm* forced) {
    if (forced != nullptr && forced->kind == shape.call->kind && forced->applies(shape))
        return forced;
    const WireAlgorithm *first = nullptr, *second = nullptr;
    for (int i = 0; i < kWireAlgorithmCount && second == nullptr; ++i) {
        const WireAlgorithm* row = kWireAlgorithms[i];
        if (row->kind == shape.call->kind && row->applies(shape) && (row->rank_order || !rank_order))
            (first == nullptr ? first : second) = row;
    }
    if (second == nullptr || shape.world_size > kMostPredicted)
        return first; // nothing to choose
    const WireCandidate* best = nullptr;
    for (const WireCandidate& each : candidates(shape))
        if ((each.row->rank_order || !rank_order) && each.row->applies(shape) &&
            (best == nullptr || each.ns < best->ns))
            best = &each;
    return best != nullptr ? best->row : first;
}

} // namespace collectives
