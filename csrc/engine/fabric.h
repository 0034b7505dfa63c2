// Fabric: what the ranks of a communicator run on, behind one face: a group in shared memory with its operation, or a group
// between hosts with its. The shared-memory side is called directly. Private to the engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/group.h"
#include "engine/operation.h"
#include "engine/wire_operation.h"

namespace collectives {

class Fabric {
  public:
    /// `wire` null: all members are on this host. Else `local` has this rank alone.
    Fabric(std::unique_ptr<Group> local, std::unique_ptr<WireGroup> wire, const WireAlgorithm* forced)
        : local_(std::move(local)), wire_(std::move(wire)), forced_(forced), operation_(*local_) {
        if (wire_ != nullptr)
            wire_operation_ = std::make_unique<WireOperation>(*wire_);
    }

    Group& local() const { return *local_; }
    WireGroup* wire() const { return wire_.get(); }
    Operation& local_operation() { return operation_; }

    // Members.
    uint64_t id() const { return wire_ ? wire_->id() : local_->id(); }
    bool is_dead(int q) const { return wire_ ? wire_->is_dead(q) : local_->is_dead(q); }
    int dead_member() const { return wire_ ? wire_->dead_member() : local_->dead_member(); }
    std::string name_of(int q) const { return wire_ ? wire_->name_of(q) : local_->name_of(q); }
    Status known_failure(int* culprit) const {
        return wire_ ? wire_->known_failure(culprit) : local_->known_failure(culprit);
    }
    /// `waiting`: an operation is in progress, so that one that closed or left counts if it is waited for.
    Status peer_trouble(bool waiting, int* culprit) {
        return wire_ ? wire_->peer_trouble(culprit)
                     : local_->peer_trouble(waiting ? operation_.awaited_phase() : 0, culprit);
    }
    void publish_failure(Code code, int culprit, const std::string& text) {
        wire_ ? wire_->publish_failure(code, culprit, text) : local_->publish_failure(code, culprit, text);
    }

    // The operation.
    void begin(const Call& call, const PlannerConfig& config, uint64_t sequence, int64_t timeout_ns) {
        if (wire_ == nullptr)
            return operation_.begin(call, config, sequence);
        wire_operation_->begin(call, config, forced_, sequence, deadline_after(monotonic_ns(), timeout_ns));
    }
    Operation::State advance() { return wire_ ? wire_operation_->advance() : operation_.advance(); }
    bool active() const { return wire_ ? wire_operation_->active() : operation_.active(); }
    void abandon() { wire_ ? wire_operation_->abandon() : operation_.abandon(); }
    const Call& call() const { return wire_ ? wire_operation_->call() : operation_.call(); }
    uint64_t sequence() const { return wire_ ? wire_operation_->sequence() : operation_.sequence(); }
    const Status& failure() const { return wire_ ? wire_operation_->failure() : operation_.failure(); }
    int culprit() const { return wire_ ? wire_operation_->culprit() : operation_.culprit(); }
    std::vector<int> missing_ranks() { return wire_ ? wire_operation_->missing_ranks() : operation_.missing_ranks(); }
    /// Changes with every step that the operation makes.
    uint64_t mark() const { return wire_ ? wire_operation_->mark() : local_->phase(); }

  private:
    std::unique_ptr<Group> local_;
    std::unique_ptr<WireGroup> wire_;
    const WireAlgorithm* forced_;
    Operation operation_;
    std::unique_ptr<WireOperation> wire_operation_;
};

} // namespace collectives
