// WirePlanner: which algorithm between hosts a call takes: the one that is predicted to be the fastest by what is known of the
// links (link_profile.h). The same on all ranks, since they hold the same profile and predict from what all know of the
// call. One a group of links; not thread-safe. Private to the engine.
#pragma once

#include <map>
#include <vector>

#include "algorithms/program.h"
#include "engine/link_profile.h"

namespace collectives {

struct WireCandidate {
    const WireAlgorithm* row;
    double ns; // predicted
    int peers; // that one rank sends to, at most
};

struct PlannerConfig;

/// The call as programs between hosts see it. Of an all_to_all without splits, the block's size is known to all.
Shape wire_shape_of(const Call& call, int rank, int world_size, const PlannerConfig& config);

class WirePlanner {
  public:
    void set_profile(const LevelProfile& profile) {
        profile_ = profile;
        known_.clear();
    }
    const LevelProfile& profile() const { return profile_; }

    /// Never null for a valid call. `rank_order`: only algorithms that sum in the order of the ranks. `forced`: taken where it
    /// applies.
    const WireAlgorithm* choose(const Shape& shape, bool rank_order, const WireAlgorithm* forced);
    /// What one row would take for this call, corrections included.
    WireCandidate predict(const WireAlgorithm& row, const Shape& shape) const;
    /// Those that a call of this size (to an eighth of a doubling) could take, and what they would take.
    const std::vector<WireCandidate>& candidates(const Shape& shape);

    /// Predictions that differ by less are equal: then the one with the fewest peers a rank is taken. Flows that share a
    /// port do not end together, and cost the receiver more a byte, which the model does not know.
    static constexpr double kTie = 1.03;
    static constexpr int kMostPredicted = 256; // in larger groups the first row that applies is taken

  private:
    LevelProfile profile_;
    std::map<uint64_t, std::vector<WireCandidate>> known_; // by kind, dtype, form and class of size
};

} // namespace collectives
