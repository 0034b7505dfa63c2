// Faults: what the transport `faulty` does to the one that it wraps. A plan says how often and how much, a seed decides
// when; the node asks its Faults before and after each publication (a phase of a group, a record in a message ring).
// Nodes without a plan hold none: one predictable branch. May be included by transport and engine; includes base only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace collectives {

/// The faults of one node, for NodeConfig::faults. Give each node its own seed: chance is an argument.
struct FaultPlan {
    std::string over = "inproc"; // the transport that is wrapped
    uint64_t seed = 0;
    double delay_probability = 0; // of each publication
    int64_t max_delay_ns = 0;
    double reorder_probability = 0;       // of each message: others of another (communicator, tag) may overtake it
    int64_t drop_after_publications = -1; // the node dies after this many (0: before its first); negative: never
    bool silent_death = false;            // peers do not see it die, as with SIGSTOP or a cut cable
};

/// What is wrong with a plan's numbers; ok: nothing. Errors: invalid_argument.
Status check_plan(const FaultPlan& plan);

class Faults {
  public:
    /// `vanish` shows the peers that this node died; called once, unless the plan's death is silent.
    Faults(const FaultPlan& plan, std::function<void()> vanish);

    /// Before a publication: waits for the time that is drawn for it. False: this node is dead and publishes nothing.
    bool may_publish();
    /// After a publication. The last one that the plan grants ends the node.
    void published();
    /// A dead node stays dead. Any thread.
    bool dead() const { return dead_.load(std::memory_order_acquire); }

    /// Whether the next message waits for company, in which order is drawn.
    bool reorders();
    /// One of `n` candidates.
    uint64_t choose(uint64_t n);

    /// The draws: pure functions of the plan and a number that counts publications or messages.
    int64_t delay_ns(uint64_t publication) const;
    bool reorders(uint64_t message) const;

  private:
    void die();

    const FaultPlan plan_;
    const std::function<void()> vanish_;
    std::atomic<uint64_t> attempts_{0}, published_{0}, messages_{0}, choices_{0};
    std::atomic<bool> dead_{false};
};

/// A counter-based generator: 64 random bits of (seed, stream, index).
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);

} // namespace collectives
