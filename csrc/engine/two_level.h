// Two levels: a collective of a group with several ranks on each of several hosts, as calls of one-level ones: within the
// host over shared memory, and between the ranks of equal place on all hosts over links (a "lane"), so that all ranks of a
// host drive its link together. Private to the engine; the face is that of Operation.
//
// A large all_reduce goes in chunks: while one is between the hosts, the next is summed within the host, and the last one is
// spread there, so that the link is never idle. Each level has its stages in an order that is the same on all of its ranks,
// and goes through them one after the other; a stage may also wait for one of the other level.
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
    bool active() const { return left_ > 0; }
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
        int after = -1; // the stage that must be over before it begins
        bool over = false;
        Call call;
        double divisor = 1.0; // lane: of avg, over all ranks
        std::vector<int64_t> in_counts, out_counts;
        std::vector<void*> in_ptrs, out_ptrs;
    };

    /// The stages of one level that is in progress.
    struct Track {
        int next = 0; // the stage that is in progress, or comes next
        bool begun = false;
    };

    Stage& add(Level level);
    /// The same, after the last one that was added.
    Stage& add_after_last(Level level);
    void plan_all_reduce();
    void plan_broadcast();
    void plan_all_gather();
    void plan_reduce_scatter();
    int64_t block_offset(const Blocks& blocks, int block) const;
    void start_planning(const Call& call, const PlannerConfig& config, int64_t deadline_ns, const Label& label);
    void plan_chunk(Share chunk, int* within, int* between);
    void spread_chunk(Share chunk, int after);
    Share share_of_lane(int64_t count, int place) const;
    std::vector<int64_t> shares_of_lanes(int64_t count) const;
    bool begin_stage(Stage& stage);
    Operation::State advance(bool lane, bool* moved);
    Operation::State fail(bool lane);
    bool in_progress(bool lane) const { return active() && track_[lane].begun; }
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
    int n_stages_ = 0, left_ = 0;
    Track track_[2]; // within the host, and of the lane
    std::vector<uint8_t> scratch_;
    Status failure_;
    int culprit_ = -1;
};

} // namespace collectives
