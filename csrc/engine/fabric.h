// Fabric: what the ranks of a communicator run on, behind one face: a group in shared memory with its operation, or a group
// between hosts with its, on one level or on two. The shared-memory side is called directly. Private to the engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/group.h"
#include "engine/operation.h"
#include "engine/two_level.h"
#include "engine/wire_operation.h"

namespace collectives {

class Fabric {
  public:
    /// `wire` null: all members are on this host. Else `local` has this rank alone, and `two_level` may be null.
    Fabric(std::unique_ptr<Group> local, std::unique_ptr<WireGroup> wire, std::unique_ptr<TwoLevel> two_level,
           const WireAlgorithm* forced, bool deterministic);

    Group& local() const { return *local_; }
    WireGroup* wire() const { return wire_.get(); }
    TwoLevel* two_level() const { return two_level_.get(); }

    // Members.
    uint64_t id() const { return wire_ ? wire_->id() : local_->id(); }
    bool is_dead(int q) const { return wire_ ? wire_is_dead(q) : local_->is_dead(q); }
    int dead_member() const { return wire_ ? wire_dead_member() : local_->dead_member(); }
    std::string name_of(int q) const { return wire_ ? wire_->name_of(q) : local_->name_of(q); }
    bool has_closed(int q) const { return wire_ ? wire_->has_closed(q) : local_->has_closed(q); }
    Status known_failure(int* culprit) const {
        return wire_ ? wire_known_failure(culprit) : local_->known_failure(culprit);
    }
    /// `waiting`: an operation is in progress, so that one that closed or left counts if it is waited for.
    Status peer_trouble(bool waiting, int* culprit) {
        return wire_ ? wire_peer_trouble(waiting, culprit)
                     : local_->peer_trouble(waiting ? operation_.awaited_phase() : 0, culprit);
    }
    void publish_failure(Code code, int culprit, const std::string& text);

    /// What is known of the links. Nothing may be in progress.
    void set_profile(const LinkProfile& profile);

    // The operation.
    void begin(const Call& call, const PlannerConfig& config, uint64_t sequence, int64_t timeout_ns) {
        wire_ ? wire_begin(call, config, sequence, timeout_ns) : operation_.begin(call, config, sequence);
    }
    Operation::State advance() { return wire_ ? wire_advance() : operation_.advance(); }
    bool active() const;
    void abandon();
    const Call& call() const;
    uint64_t sequence() const;
    const Status& failure() const;
    int culprit() const;
    std::vector<int> missing_ranks();
    /// Changes with every step that the operation makes.
    uint64_t mark() const { return wire_ ? wire_mark() : local_->phase(); }

    /// Where the operation failed because a rank of this host published another fingerprint: the group, and its place in
    /// it. Null: it did not.
    Group* mismatch(int* place) const;
    /// The communicator's rank of a place in that group.
    int rank_of(const Group& group, int place) const;

  private:
    bool wire_is_dead(int q) const { return wire_->is_dead(q) || (two_level_ && two_level_->is_dead(q)); }
    int wire_dead_member() const;
    Status wire_known_failure(int* culprit) const;
    Status wire_peer_trouble(bool waiting, int* culprit);
    Status other_levels(int* culprit) const;
    bool takes_two_levels(const Call& call, const PlannerConfig& config) const;
    void wire_begin(const Call& call, const PlannerConfig& config, uint64_t sequence, int64_t timeout_ns);
    Operation::State wire_advance() { return layered_ ? two_level_->advance() : wire_operation_->advance(); }
    uint64_t wire_mark() const { return wire_operation_->mark() + (two_level_ ? two_level_->mark() : 0); }

    std::unique_ptr<Group> local_;
    std::unique_ptr<WireGroup> wire_;
    const WireAlgorithm* forced_;
    const bool deterministic_;
    Operation operation_;
    std::unique_ptr<WireOperation> wire_operation_;
    std::unique_ptr<TwoLevel> two_level_;
    bool layered_ = false; // the operation in progress goes on two levels
    uint64_t wire_sequence_ = 0;
};

} // namespace collectives
