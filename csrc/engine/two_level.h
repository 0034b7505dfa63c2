// Two levels: a collective of a group with several ranks on each of several hosts, as calls of one-level ones: within the
// host over shared memory, and between the ranks of equal place on all hosts over links (a "lane"), so that all ranks of a
// host drive its link together. Private to the engine; the face is that of Operation.
//
// Sums are taken within each host first, in the order of its ranks, and then in the order of the hosts. That is another
// association than rank order, so a deterministic group stays on one level; so do half-width floats, whose partial sums
// would be rounded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/group.h"
#include "engine/operation.h"
#include "engine/wire_operation.h"

namespace collectives {

/// Who is where. Hosts are numbered in the order of their first ranks.
struct HostLayout {
    std::vector<int> host_of;            // of each rank
    std::vector<int> place_of;           // of each rank, among those of its host
    std::vector<std::vector<int>> ranks; // of each host, in order
    int lanes = 1;                       // ranks of the host that has the fewest
    bool even = false;                   // all hosts have the same number of ranks, which follow each other

    static HostLayout of(const std::vector<Hello>& hellos);
    int hosts() const { return int(ranks.size()); }
    /// Whether two levels differ from one: several hosts, and one of them with several ranks.
    bool layered() const { return hosts() > 1 && int(host_of.size()) > hosts(); }
};

class TwoLevel {
  public:
    /// `local`: the ranks of this host; `lane`: those of this place, null where this rank has none.
    TwoLevel(HostLayout layout, int rank, std::unique_ptr<Group> local, std::unique_ptr<WireGroup> lane);

    /// Whether it can run this call. A pure function of what all ranks know alike.
    bool applies(const Call& call, bool deterministic) const;

    void begin(const Call& call, const PlannerConfig& config, int64_t deadline_ns, const Label& label);
    /// To measure: the call, of this lane alone; nothing where this rank has none.
    void begin_on_lanes(const Call& call, const PlannerConfig& config, int64_t deadline_ns, const Label& label);
    /// That of the lane; null where this rank has none.
    WirePlanner* planner() { return lane_operation_ != nullptr ? &lane_operation_->planner() : nullptr; }
    const HostLayout& layout() const { return layout_; }
    Operation::State advance();
    bool active() const { return stage_ < n_stages_; }
    void abandon();
    const Call& call() const { return *call_; }
    uint64_t sequence() const { return label_.sequence; }
    const Status& failure() const { return failure_; }
    int culprit() const { return culprit_; }
    std::vector<int> missing_ranks();
    uint64_t mark() const;

    Group& local() { return *local_; }
    /// The rank of this host whose fingerprint differs from ours in the phase where the operation failed; -1: none.
    int place_of_mismatch() const;
    int rank_of_local(int place) const { return layout_.ranks[size_t(host_)][size_t(place)]; }
    /// What is wrong with the ranks of this host, as Group::peer_trouble.
    Status peer_trouble(bool waiting, int* culprit);
    bool is_dead(int q) const;
    void publish_failure(Code code, int culprit, const std::string& text);
    Status known_failure(int* culprit) const;

  private:
    enum class Level : uint8_t { copy, local, lane };
    struct Stage {
        Level level = Level::copy;
        Call call;
        double divisor = 1.0; // lane: of avg, over all ranks
        std::vector<int64_t> in_counts, out_counts;
        std::vector<void*> in_ptrs, out_ptrs;
    };

    Stage& add(Level level);
    void plan_all_reduce();
    void plan_broadcast();
    void plan_all_gather();
    void plan_reduce_scatter();
    int64_t block_offset(const Blocks& blocks, int block) const;
    bool begin_stage();
    void copy(const Stage& stage);
    int rank_of_lane(int host) const { return layout_.ranks[size_t(host)][size_t(place_)]; }

    const HostLayout layout_;
    const int rank_, host_, place_;
    std::unique_ptr<Group> local_;
    Operation local_operation_;
    std::unique_ptr<WireGroup> lane_;
    std::unique_ptr<WireOperation> lane_operation_;

    const Call* call_ = nullptr;
    PlannerConfig config_;
    Label label_;
    uint64_t lane_sequence_ = 0, finished_ = 0;
    bool failed_within_ = false;
    int64_t deadline_ns_ = 0;
    std::vector<Stage> stages_; // reused
    int n_stages_ = 0, stage_ = 0;
    bool begun_ = false;
    std::vector<uint8_t> scratch_;
    Status failure_;
    int culprit_ = -1;
};

} // namespace collectives
