// WireOperation: one collective between hosts on its way: runs a program (algorithms/program.h) over the links of a group.
// The counterpart of Operation, with the same face; one a communicator, reused. Private to the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/program.h"
#include "engine/operation.h"
#include "engine/wire_group.h"
#include "engine/wire_planner.h"

namespace collectives {

class WireOperation final : public FrameOwner {
  public:
    explicit WireOperation(WireGroup& group);
    ~WireOperation();

    /// `sequence`: of this group's operations, without gaps. `label`: what was called. `divisor`: of avg.
    void begin(const Call& call, const PlannerConfig& config, const WireAlgorithm* forced, uint64_t sequence,
               int64_t deadline_ns, const Label& label, double divisor);
    Operation::State advance();

    WirePlanner& planner() { return planner_; }
    bool active() const { return active_; }
    void abandon();
    const Status& failure() const { return failure_; }
    int culprit() const { return culprit_; }
    std::vector<int> missing_ranks();
    const Call& call() const { return *call_; }
    uint64_t sequence() const { return sequence_; }
    /// The last one that came to its end without a failure; all that it owed the others has left.
    uint64_t completed() const { return completed_; }
    const Label& label() const { return label_; }
    /// Whether a frame belongs to the communicator's call of this number, as far as it says.
    static bool is_call(const wire::FrameHeader& header, uint64_t call_number);
    /// What a rank is told whose call is another than the one that a frame of rank q shows.
    static Status differs(const WireGroup& group, const Label& mine, int q, const wire::FrameHeader& theirs);
    /// Grows with every action that ends. Any thread.
    uint64_t mark() const { return mark_.load(std::memory_order_relaxed); }

    // For the group; the mesh's lock is held.
    Landing land(int q, const wire::FrameHeader& header);
    void landed(int q, const wire::FrameHeader& header);
    void has_begun(int q);
    void frame_sent(OutFrame& frame) override;

  private:
    Operation::State advance_locked(); // the caller holds the mesh's lock
    struct Cached {
        Call call;
        std::vector<int64_t> in_counts, out_counts;
        bool in_place = false;
        const WireAlgorithm* algorithm = nullptr;
        Program program;
        std::vector<int32_t> before; // n_before of each action
        uint64_t used = 0;
    };

    Cached& program_for(const Call& call, const WireAlgorithm& algorithm);
    void release(int action);
    void end(int action);
    void run_ready();
    void run_compute(const Action& action);
    void try_send(int action);
    void send_parked();
    void tell_begun();
    void scale_input();
    void take_early();
    uint8_t* at(const Place& place) const;
    int64_t bytes(const Action& action) const { return action.count * shape_.element_bytes; }
    int64_t shown_count(const Action& action) const;
    void fail(Status status, int culprit);
    void let_go();
    void disagree(int q, const wire::FrameHeader& header);
    void disagree_about_blocks(int q, const wire::FrameHeader& header);
    wire::FrameHeader header_for(wire::FrameKind kind) const;

    WireGroup& group_;
    WirePlanner planner_;
    const Call* call_ = nullptr;
    Label label_;
    Shape shape_;
    Cached* current_ = nullptr;
    std::vector<std::unique_ptr<Cached>> cache_;
    bool active_ = false;
    uint64_t sequence_ = 0, completed_ = 0, fingerprint_ = 0x243f6a8885a308d3ull;
    int64_t deadline_ns_ = 0;
    Status failure_;
    int culprit_ = -1;
    std::atomic<uint64_t> mark_{0};

    std::vector<int32_t> before_; // what each action still waits for
    std::vector<uint8_t> done_;
    std::vector<int32_t> ready_, computing_;
    size_t next_computing_ = 0;
    std::vector<OutFrame> frames_;         // of the sends
    std::vector<int32_t> frame_of_;        // by action
    std::vector<std::vector<int>> parked_; // by peer: sends that it has to begin for
    std::vector<int> unparked_;            // peers that have
    std::vector<int64_t> sent_bytes_;      // by peer
    int left_ = 0;                         // actions that have not ended
    std::vector<uint8_t> scratch_, scaled_;
    std::vector<int64_t> in_offsets_, out_offsets_;
    std::vector<void*> dsts_; // of a reduction: at most one a rank, of either
    std::vector<const void*> srcs_;
    kernels::ReduceFn reduce_ = nullptr;
    kernels::ReduceArgs whole_, partial_;
    uint8_t nothing_ = 0; // where empty payloads go
};

} // namespace collectives
