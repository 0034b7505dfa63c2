// Programs whose times tell the costs of links (program_cost.h). They compute nothing, and stand in no table: the engine runs
// them when a group forms, as a broadcast of bytes. Every rank does the same, all at once, as in a collective.
// Included by the engine.
#pragma once

#include "algorithms/program_cost.h"

namespace collectives {

struct LinkProbe {
    static constexpr int kFewRounds = 2, kManyRounds = 10, kBurst = 4, kMostPeers = 7;

    /// Each round: send to the next rank, receive from the one before; a round begins when the last one has ended.
    static const WireAlgorithm few_rounds, many_rounds;
    /// One frame to each of the next ranks (kMostPeers of them at most; to the only one, kBurst).
    static const WireAlgorithm fan;
    /// kBurst frames to the next rank, at once.
    static const WireAlgorithm burst;

    /// Frames that a rank sends in `fan`.
    static int fan_frames(int world_size);
};

/// What the probes took, in nanoseconds: from a common start to the end of the slowest rank.
struct ProbeTimes {
    static constexpr int64_t kSmallBytes = LinkCosts::kPointBytes[0];

    double few_rounds = 0, many_rounds = 0, fan = 0; // of kSmallBytes
    /// Of frames of LinkCosts::kPointBytes[i]; the first is not used. Negative: not measured.
    std::array<double, LinkCosts::kPoints> by_size{};
    double reduce_byte_ns = 0.1, copy_byte_ns = 0.1;

    /// The probe that measures frames of that size.
    static const WireAlgorithm& probe_of(int point);
};

/// The costs that explain these times, so that predict_ns gives them back.
LinkCosts fit_costs(const ProbeTimes& times, int world_size);

} // namespace collectives
