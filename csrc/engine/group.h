// Group: the memory that the members of one communicator share, and how far each of them has got. Below the operation,
// above the node. Private to the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/communicator.h"
#include "transport/local_node.h"

namespace collectives {

struct Member {
    PeerProcess* process = nullptr; // null: this rank
    SegmentHeader* header = nullptr;
    int bell_fd = -1;
    ControlBlock* control = nullptr;
    uint8_t* staging = nullptr;
    uint8_t* heap = nullptr;
    std::string host;
    int64_t pid = 0;
    uint64_t owner = 0; // what its control block says while it belongs to this group
    uint64_t seen = 0;  // the highest phase that we know it published
};

class Group {
  public:
    /// Collective over the bootstrap. When the members are not all on this host (or `never_local`), the group is null, and
    /// `hellos` says who they are.
    static Status create(LocalNode& node, const CommunicatorConfig& config, Bootstrap& bootstrap, int64_t deadline_ns,
                         bool never_local, std::unique_ptr<Group>* out, std::vector<Hello>* hellos);
    /// Of this rank alone.
    static std::unique_ptr<Group> alone(LocalNode& node, const CommunicatorConfig& config);
    /// Whether so many ranks of one host can share memory. Errors: unsupported.
    static Status check_size(int ranks);
    static constexpr int kMostRanks = 64; // each polls a line of every other
    ~Group();

    int rank() const { return rank_; }
    int size() const { return int(members_.size()); }
    Member& member(int q) { return members_[size_t(q)]; }
    Member& self() { return members_[size_t(rank_)]; }
    uint64_t id() const { return id_; }
    int64_t half_bytes() const { return staging_bytes_ / 2; }
    int64_t staging_bytes() const { return staging_bytes_; }
    uint8_t* staging_of(int q, uint64_t phase) {
        return members_[size_t(q)].staging + int64_t(phase & 1) * half_bytes();
    }
    LocalNode& node() { return node_; }

    /// The phase that was published last. Phases count from 1 and never repeat.
    uint64_t phase() const { return phase_; }
    PhaseLine& own_line(uint64_t phase) { return self().control->lines[phase & 1]; }

    /// Publishes the next phase with `fingerprint` and wakes sleeping peers. Everything written before is visible to a
    /// rank that sees it.
    void publish(uint64_t fingerprint);

    enum class Arrival { yes, no, mismatch };
    /// Whether rank q has published `phase`. `mismatch`: it has, under another fingerprint than ours.
    Arrival arrived(int q, uint64_t phase) {
        Member& m = members_[size_t(q)];
        if (m.seen >= phase)
            return Arrival::yes;
        const PhaseLine& line = m.control->lines[phase & 1];
        uint64_t value = line.phase.load(std::memory_order_acquire);
        if (value < phase)
            return Arrival::no;
        // `value` is our phase or a later one; the line still holds our phase's fingerprint if it is ours, since nobody
        // publishes two phases ahead of a rank that has not finished this one.
        if (value == phase && own_phase_[phase & 1] == phase &&
            line.fingerprint.load(std::memory_order_relaxed) != own_fingerprint_[phase & 1])
            return Arrival::mismatch;
        m.seen = value;
        return Arrival::yes;
    }
    Arrival all_arrived(uint64_t phase) {
        for (int q = 0; q < size(); ++q)
            if (q != rank_)
                if (Arrival a = arrived(q, phase); a != Arrival::yes) {
                    last_blocked_ = q;
                    return a;
                }
        return Arrival::yes;
    }
    int last_blocked() const { return last_blocked_; } // the rank for whom all_arrived last said no or mismatch

    /// Shows our failure (or closing, Code::closed) to the peers and wakes them. Once.
    void publish_failure(Code code, int culprit, const std::string& text);
    /// A member that died or has shown a failure (not a closed one), as a status that names the cause; ok: none. Any thread.
    Status known_failure(int* culprit) const;
    std::string told_by(int q, const std::string& text) const;
    /// A failure that a peer has shown; a closed peer counts only if it has not reached `phase`. Ok: none.
    Status peer_trouble(uint64_t phase, int* culprit);

    /// Whether a member's process ended without saying good-bye.
    bool is_dead(int q) const {
        const Member& m = members_[size_t(q)];
        return m.process != nullptr && m.process->dead.load(std::memory_order_relaxed) &&
               m.header->state.load(std::memory_order_acquire) != uint32_t(ProcessState::leaving);
    }
    /// A member that is dead, or -1. A few loads.
    int dead_member() const {
        for (int q = 0; q < size(); ++q)
            if (is_dead(q))
                return q;
        return -1;
    }

    bool has_closed(int q) const {
        const Member& m = members_[size_t(q)];
        return m.control != nullptr && Code(m.control->failure.code.load(std::memory_order_acquire)) == Code::closed;
    }

    /// "rank 2 (process 71 on host a)", with the rank's number in the job where that differs.
    std::string name_of(int q) const;
    const std::string& name() const { return name_; }
    /// Whether no member can still be in an operation: all have closed, failed or ended. May be asked when this is gone.
    std::function<bool()> nobody_looks() const;

  private:
    explicit Group(LocalNode& node) : node_(node) {}
    Status take_memory(const CommunicatorConfig& config);
    Status meet(const CommunicatorConfig& config, Bootstrap& bootstrap, int64_t deadline_ns);
    Status attach(int64_t deadline_ns);
    void abandon(const Status& status);

    LocalNode& node_;
    int rank_ = 0;
    std::string name_;
    std::vector<int> shown_ranks_, global_ranks_;
    std::vector<Member> members_;
    /// What a rank tells its peers besides its hello.
    struct Setup {
        uint64_t id; // of the group if this is rank 0, and of this rank's control block
        int64_t control_offset, staging_offset, staging_bytes;
    };
    std::vector<Hello> hellos_; // while the group forms
    std::vector<Setup> setups_;
    uint64_t id_ = 0;
    int64_t control_offset_ = -1, staging_offset_ = -1, staging_bytes_ = 0;
    uint64_t phase_ = 0;
    uint64_t own_phase_[2] = {0, 0};
    uint64_t own_fingerprint_[2] = {0, 0};
    int last_blocked_ = -1;
    bool failure_published_ = false;
};

} // namespace collectives
