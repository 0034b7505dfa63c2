// Operation: one collective on its way, as a machine that can stop at every wait. Runs the steps of an algorithm on the
// group's memory; blocks nowhere. One a communicator, reused. Private to the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "engine/group.h"
#include "engine/ways.h"

namespace collectives {

struct WireAlgorithm;

/// What the planner may know besides the call.
struct PlannerConfig {
    const Algorithm* forced = nullptr;
    kernels::Store stage_store = kernels::Store::plain;
    int64_t piece_bytes = 512 << 10;            // staged by a rank in one phase
    int64_t mapped_from_bytes = 128 << 10;      // from here ranks ask whether all have mapped memory,
    int64_t mapped_hint_bytes = 4 << 10;        // and from here once a call of that size has shown that they had
    int64_t pull_from_bytes = INT64_MAX;        // blocks from here (shares, of all_reduce) are pulled, unmeasured
    WaySet ways = way_bit(Way::staged);         // among these large calls measure and choose; alike on all ranks
    int64_t wire_piece_bytes = 512 << 10;       // between hosts: received, reduced and sent on at a time
    int64_t chunk_bytes = 4 << 20;              // of two levels: within the host while another is between hosts
    int64_t streaming_from_bytes = 4 << 20;     // from here the user's output is written past the caches
    bool deterministic = false;                 // sums in the order of the ranks
    bool two_levels = false;                    // wherever they apply, whatever they are predicted to take
    const WireAlgorithm* wire_forced = nullptr; // to measure: this one between hosts,
    bool lanes_only = false;                    // between the ranks of equal place on all hosts, every lane for itself
};

/// The planner: a pure function of shape and config. Never null for a valid call.
const Algorithm* choose_algorithm(const Shape& shape, const PlannerConfig& config);
/// Bytes that would be pulled at a time: a block, or of all_reduce a share.
int64_t pull_unit_bytes(const Shape& shape);
/// Whether ranks could compare where their buffers lie, and whether they must.
bool can_take_notes(const Shape& shape, const PlannerConfig& config);
bool wants_notes(const Shape& shape, const PlannerConfig& config);
Shape shape_of(const Call& call, int rank, int world_size, int64_t half_bytes, const PlannerConfig& config);
/// The part of a call that must be the same on all ranks, as a number.
uint64_t signature_of(const Call& call, int rank, int world_size);
/// "all_reduce of 1024 float32, sum"
std::string describe(const Call& call, int rank);

/// Of a call that is a part of another: what its errors and fingerprints are about.
struct Label {
    const Call* call = nullptr;
    uint64_t signature = 0;
    uint64_t sequence = 0; // of the whole
    int rank = 0;          // in the communicator of the whole
    int64_t count = 0;     // elements of the largest block
};
Label label_of(const Call& call, int rank, int world_size, uint64_t sequence);

constexpr int64_t kNoteRoomBytes = 64; // at the beginning of a staging half, in a phase of notes

class Operation {
  public:
    explicit Operation(Group& group)
        : group_(group), steps_(group.size()), in_offsets_(size_t(group.size())), out_offsets_(size_t(group.size())),
          peer_in_(size_t(group.size())), peer_out_(size_t(group.size())) {}

    /// `label`: null where the call is all that was called.
    void begin(const Call& call, const PlannerConfig& config, uint64_t sequence, const Label* label = nullptr);

    enum class State { running, blocked, done, failed };
    /// Goes as far as it can without waiting. `failed`: see failure().
    State advance();

    bool active() const { return stage_ != Stage::idle; }
    void abandon();
    const Status& failure() const { return failure_; }
    int culprit() const { return culprit_; }
    /// The phase that blocked() ranks have not published yet.
    uint64_t awaited_phase() const { return awaited_; }
    std::vector<int> missing_ranks();
    const Call& call() const { return *call_; }
    uint64_t sequence() const { return sequence_; }

  private:
    enum class Stage { idle, write, wait };
    struct PeerBuffer {
        uint8_t* mapped = nullptr; // here, or null:
        uint64_t address = 0;      // there, to be pulled
    };
    struct Places { // notes on where this rank's buffers lie (operation_notes.cc)
        int64_t in, out;
    };

    void record_call(const Call& call, int64_t count);
    void schedule_way();
    void schedule_blocks();
    void take_way(Way way);
    int judge() const;
    void first_wait_is_over();
    void finish_way();
    int64_t place_of(const Blocks& blocks, int n) const;
    Places places() const;
    void hold_buffers() const;
    void schedule_hint();
    void write_hint();
    void read_hint();
    void start_algorithm();
    void emit();
    bool may_publish();
    bool may_read();
    bool blocked_on(Group::Arrival arrival, uint64_t phase);
    void write_notes();
    void write_table();
    uint8_t* staging_of(int q, uint64_t phase) const;
    uint8_t* table_of(int q, uint64_t phase) const;
    bool read_table();
    void read_notes();
    bool run(int first, int last);
    bool pull(const Ref& ref, void* dst, int64_t offset_bytes, int64_t bytes);
    bool run_reduction(const Step& step, const Ref* refs);
    PeerBuffer peer_buffer(int q, int64_t place);
    const PeerBuffer* pulled(const Ref& ref) const;
    uint8_t* resolve(const Ref& ref) const;
    State fail(Status status, int culprit);
    State mismatch();

    Group& group_;
    PhaseSteps steps_;
    const Call* call_ = nullptr;
    PlannerConfig config_;
    Shape shape_;
    const Algorithm* algorithm_ = nullptr;
    Stage stage_ = Stage::idle;
    bool notes_ = false; // the phase in progress compares where buffers lie
    bool hints_ = false; // the first phase also shows whether this rank's buffers are mapped
    int64_t index_ = 0, phases_ = 1;
    uint64_t sequence_ = 0, fingerprint_ = 0x243f6a8885a308d3ull, awaited_ = 0;
    Status failure_;
    int culprit_ = -1;
    kernels::ReduceFn reduce_[2] = {nullptr, nullptr};
    kernels::ReduceArgs reduce_args_;
    kernels::ScaleFn scale_ = nullptr;
    std::vector<int64_t> in_offsets_, out_offsets_; // bytes of block starts, when counts are given
    std::vector<PeerBuffer> peer_in_, peer_out_;
    std::vector<int64_t> matrix_;
    // Which way the data goes, where there is a choice (ways.h). Rank 0 measures, and its choice comes with the notes of
    // a deciding turn, or with the table.
    WayChooser chooser_;
    WayTable agreed_[kCollectiveCount], wanted_blocks_;
    uint64_t seen_mapped_[kCollectiveCount] =
        {}; // a bit for each doubling of bytes: all had them mapped in the last call
    Turn turn_;
    int way_class_ = 0;
    Way way_ = Way::staged;               // of this call; blocks of all_to_all have their own
    Way timed_way_ = Way::staged;         // what this call's time is noted under
    bool timed_ = false, waited_ = false; // this call; its first wait is over
    int64_t way_started_ns_ = 0, first_wait_started_ns_ = 0;
};

} // namespace collectives
