// Two levels: a collective of a group with several ranks on some of several hosts, as calls of one-level ones: within the host
// over shared memory, and between one rank of each host over links (a "lane", host_layout.h), so that all ranks of a host
// drive its link together. Private to the engine; the face is that of Operation.
//
// Large calls go in chunks: while one is between the hosts, the next is summed within the host, and the last one is spread
// there, so that the link is never idle. Calls within the host are one track, those on the lanes of this rank another: the
// stages of a track go one after the other, in an order that all ranks agree about; a stage may also wait for some of the other
// track. A rank that drives several lanes has them in turn, by number: frames of two would lie in each other's way on a
// connection that both have, and each wait for the other.
//
// Sums are taken within each host first, in the order of its ranks, and then in the order of the hosts. That is another
// association than rank order, so a deterministic group stays on one level; so do half-width floats, whose partial sums
// would be rounded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/group.h"
#include "engine/host_layout.h"
#include "engine/operation.h"
#include "engine/wire_operation.h"
#include "engine/wire_planner.h"

namespace collectives {

class TwoLevel {
  public:
    /// `local`: the ranks of this host; `lanes`: those that this rank drives, in order.
    TwoLevel(HostLayout layout, int rank, std::unique_ptr<Group> local, std::vector<std::unique_ptr<WireGroup>> lanes);

    /// Whether it can run this call. A pure function of what all ranks know alike.
    bool applies(const Call& call, bool deterministic) const;
    /// Whether it should: of all_to_all, whether two levels are predicted to be faster than one (`flat`), the others always.
    bool pays(const Call& call, const PlannerConfig& config, WirePlanner& flat, WirePlanner& lanes) const;
    double predict_exchange_ns(const Call& call, const PlannerConfig& config, WirePlanner& lanes) const;
    WirePlanner& planner() { return lanes_.front().operation->planner(); }
    /// The largest message that a lane carries of such an all_to_all.
    Call message_of(const Call& call) const;

    void begin(const Call& call, const PlannerConfig& config, int64_t deadline_ns, const Label& label);
    /// To measure: the call, of every lane alone.
    void begin_on_lanes(const Call& call, const PlannerConfig& config, int64_t deadline_ns, const Label& label);
    void set_profile(const LevelProfile& profile);
    const HostLayout& layout() const { return layout_; }
    Operation::State advance();
    bool active() const { return left_ > 0; }
    void abandon();
    const Call& call() const { return *call_; }
    const Label& label() const { return label_; }
    uint64_t sequence() const { return label_.sequence; }
    const Status& failure() const { return failure_; }
    int culprit() const { return culprit_; }
    std::vector<int> missing_ranks();
    uint64_t mark() const;

    Group& local() { return *local_; }
    /// The rank of this host whose fingerprint differs from ours in the phase where the operation failed; -1: none.
    int place_of_mismatch() const;
    int rank_of_local(int place) const { return layout_.ranks[size_t(host_)][size_t(place)]; }
    /// What is wrong with the ranks of this host and of the lanes, as Group::peer_trouble.
    Status peer_trouble(bool waiting, int* culprit);
    bool is_dead(int q) const;
    void publish_failure(Code code, int culprit, const std::string& text);
    Status known_failure(int* culprit) const;

    static constexpr const char* kName = "two_levels"; // an algorithm by this name: wherever it applies

    static constexpr int64_t kScratchBytes = 4 << 20;         // the most that a call's stages put between the levels,
    static constexpr int64_t kExchangeScratchBytes = 1 << 20; // and those of an all_to_all
    /// Larger messages of an all_to_all are copied for longer than they save (measured, docs/algorithms.md).
    static constexpr int64_t kMostMessageBytes = 32 << 10;

  private:
    static constexpr int kWithin = 0, kBetween = 1; // the tracks

    /// Stages that follow each other, by number.
    struct Range {
        int begin, end;
    };
    struct Stage {
        int track = kWithin;
        int lane = 0;        // kBetween: of those of this rank
        bool copies = false; // no call, but copies of blocks of in to those of out
        Range after{};       // the stages of other tracks that must be over before it begins
        bool over = false;
        Call call;
        double divisor = 1.0; // of a lane's avg: over all ranks
        std::vector<int64_t> in_counts, out_counts;
        std::vector<void*> in_ptrs, out_ptrs;

        void copy(void* to, void* from, int64_t count);
    };
    struct Track {
        int next = 0; // the stage that is in progress, or comes next
        bool begun = false;
    };
    struct Lane {
        int number = 0;
        std::unique_ptr<WireGroup> group;
        std::unique_ptr<WireOperation> operation;
        uint64_t sequence = 0;
    };
    /// Of a call that goes in chunks, one.
    struct Chunk {
        int64_t i = 0, n = 1;
    };

    // The stages of each collective.
    void plan_all_reduce(); // two_level_sums.cc
    void plan_reduce_scatter();
    void set_first_sum(Stage* stage) const;
    void set_last_sum(Stage* stage) const;
    Share share_of_place(int64_t count, int place) const;
    Range sum_chunk(Share chunk);
    Range cross_chunk(Share chunk, Range summed);
    void spread_chunk(Share chunk, Range crossed);
    int64_t lay_out_slots();
    bool uses_slots() const;
    uint8_t* slot(int h, int own_lane, Chunk chunk) const;
    uint8_t* at(const Blocks& blocks, int h, int lane, Share piece) const;
    Range sum_blocks(Chunk chunk, Range after);
    int rounds_here() const;
    void sum_round(int h, int round, Chunk chunk, Range after);
    Range cross_blocks(Chunk chunk, Range summed);

    void plan_broadcast(); // two_level_moves.cc
    void plan_all_gather();
    Share share_of_broadcast(Share chunk, int lane, int only_lane) const;
    void broadcast_chunk(Share chunk, int only_lane);
    void spread_broadcast(Share chunk, int only_lane, Range crossed);
    Share piece(const Blocks& blocks, int h, int lane, Chunk chunk) const;
    void gather_here();
    void gather_on_lane(int own_lane, Chunk chunk);
    void gather_round(int h, int round, Chunk chunk, Range crossed);

    void plan_all_to_all(); // two_level_all_to_all.cc
    bool exchanges(const Call& call) const;
    int64_t most_carried() const;
    int64_t most_sources() const;
    int64_t blocks_between(int source, int carrier) const;
    void pack_blocks(uint8_t* packed);
    void exchange_here(uint8_t* packed, uint8_t* received);
    void sort_messages(uint8_t* received, uint8_t* messages);
    Range exchange_on_lanes(uint8_t* messages, uint8_t* arrived, Range ready);
    void place_blocks(uint8_t* arrived, Range crossed);

    // What they are made of.
    Stage& add(int track, Range after = {});
    Stage& add_call(int track, Collective kind, Range after = {});
    Stage& add_on_lane(int own_lane, Collective kind, Range after = {});
    Stage& add_copies(Range after);
    void drop_last();
    int here() const { return layout_.size(host_); }
    int own_lanes() const { return int(lanes_.size()); }
    int lane_of(int own_lane) const { return lanes_[size_t(own_lane)].number; }
    int64_t element_bytes() const { return int64_t(size_of(call_->dtype)); }
    uint8_t* block(const Blocks& blocks, int q) const;
    uint8_t* take_scratch(int64_t bytes);
    ReduceOp plain_op() const;
    int64_t chunks_of(int64_t bytes) const;

    void start_planning(const Call& call, const PlannerConfig& config, int64_t deadline_ns, const Label& label);
    bool begin_stage(Stage& stage);
    Operation::State advance(int track);
    Operation::State fail(int track);
    Status blocks_differ(int place) const;
    void run_copies(const Stage& stage) const;
    bool in_progress(int track) const { return active() && tracks_[track].begun; }
    WireOperation& current() const { return *lanes_[size_t(stages_[size_t(tracks_[kBetween].next)].lane)].operation; }
    int rank_on(int own_lane, int member) const { return layout_.rank_at(member, lane_of(own_lane)); }

    const HostLayout layout_;
    const int rank_, host_, place_;
    const int64_t most_carried_, most_sources_; // blocks of an all_to_all: of a rank on its way, and in a message
    std::unique_ptr<Group> local_;
    Operation local_operation_;
    std::vector<Lane> lanes_; // of this rank

    const Call* call_ = nullptr;
    PlannerConfig config_;
    Label label_;
    uint64_t finished_ = 0;
    bool failed_within_ = false;
    int64_t deadline_ns_ = 0;
    std::vector<Stage> stages_; // reused
    int n_stages_ = 0, left_ = 0;
    Track tracks_[2];
    std::vector<int64_t> offsets_; // bytes of block starts, of the side that has given counts
    std::vector<int64_t> slots_;   // offsets of what a chunk of reduce_scatter keeps, by host and own lane
    int64_t slot_bytes_ = 0;       // of all of them
    std::vector<uint8_t> scratch_;
    uint8_t* scratch_begin_ = nullptr;
    std::vector<uint8_t*> cursors_; // while planning
    Status failure_;
    int culprit_ = -1;
};

} // namespace collectives
