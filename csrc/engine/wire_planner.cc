// Comparing algorithms by their predicted time. See wire_planner.h.
#include "engine/wire_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

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

/// The most ranks that one rank sends to.
int most_peers(const std::vector<Program>& programs) {
    int most = 0;
    for (const Program& program : programs) {
        int peers = 0;
        for (int q = 0; q < int(programs.size()); ++q) peers += program.n_sends(q) > 0;
        most = std::max(most, peers);
    }
    return most;
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

WireCandidate WirePlanner::predict(const WireAlgorithm& row, const Shape& shape) const {
    const std::vector<Program> programs = programs_of_all(row, shape);
    double ns = predict_ns(programs, shape.element_bytes, profile_.costs);
    if (auto correction = profile_.corrections.find(row.name); correction != profile_.corrections.end())
        ns *= correction->second.at(shape.bytes());
    return {&row, ns, most_peers(programs)};
}

const std::vector<WireCandidate>& WirePlanner::candidates(const Shape& shape) {
    // By the class alone: what was asked before must not make a difference, for ranks may ask differently.
    std::vector<WireCandidate>& found = known_[key_of(shape)];
    if (found.empty())
        for (int i = 0; i < kWireAlgorithmCount; ++i)
            if (const WireAlgorithm& row = *kWireAlgorithms[i];
                row.kind == shape.call->kind && row.applies(representative(shape)))
                found.push_back(predict(row, representative(shape)));
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
    double least_ns = std::numeric_limits<double>::infinity();
    auto possible = [&](const WireCandidate& each) {
        return (each.row->rank_order || !rank_order) && each.row->applies(shape);
    };
    for (const WireCandidate& each : candidates(shape))
        if (possible(each))
            least_ns = std::min(least_ns, each.ns);
    const WireCandidate* best = nullptr;
    for (const WireCandidate& each : candidates(shape))
        if (possible(each) && each.ns <= kTie * least_ns &&
            (best == nullptr || std::pair(each.peers, each.ns) < std::pair(best->peers, best->ns)))
            best = &each;
    return best != nullptr ? best->row : first;
}

} // namespace collectives
