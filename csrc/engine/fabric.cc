// The choices between one level and two. See fabric.h.
#include "engine/fabric.h"

#include "base/clock.h"

namespace collectives {

Fabric::Fabric(std::unique_ptr<Group> local, std::unique_ptr<WireGroup> wire, std::unique_ptr<TwoLevel> two_level,
               const WireAlgorithm* forced, bool deterministic)
    : local_(std::move(local)), wire_(std::move(wire)), forced_(forced), deterministic_(deterministic),
      operation_(*local_), two_level_(std::move(two_level)) {
    if (wire_ != nullptr)
        wire_operation_ = std::make_unique<WireOperation>(*wire_);
}

void Fabric::publish_failure(Code code, int culprit, const std::string& text) {
    if (wire_ == nullptr)
        return local_->publish_failure(code, culprit, text);
    wire_->publish_failure(code, culprit, text);
    if (two_level_ != nullptr)
        two_level_->publish_failure(code, culprit, text);
}

int Fabric::wire_dead_member() const {
    for (int q = 0; q < wire_->size(); ++q)
        if (wire_is_dead(q))
            return q;
    return -1;
}

Status Fabric::wire_known_failure(int* culprit) const {
    if (two_level_ != nullptr)
        COLLECTIVES_RETURN_IF_ERROR(two_level_->known_failure(culprit));
    return wire_->known_failure(culprit);
}

Status Fabric::wire_peer_trouble(bool waiting, int* culprit) {
    COLLECTIVES_RETURN_IF_ERROR(wire_known_failure(culprit)); // first: that a part of the group is left follows from it
    if (two_level_ != nullptr)
        COLLECTIVES_RETURN_IF_ERROR(two_level_->peer_trouble(waiting && layered_, culprit));
    if (layered_ && two_level_->active())
        COLLECTIVES_RETURN_IF_ERROR(other_levels(culprit));
    return wire_->peer_trouble(culprit);
}

bool Fabric::takes_two_levels(const Call& call, const PlannerConfig& config) const {
    return two_level_->applies(call, deterministic_) &&
           two_level_->pays(call, config, wire_operation_->planner(), two_level_->planner());
}

/// A rank that runs on one level what runs on two here makes another call: nobody would answer it.
Status Fabric::other_levels(int* culprit) const {
    wire::FrameHeader shown;
    const int q = wire_->runs_here(two_level_->sequence(), &shown);
    if (q < 0)
        return {};
    *culprit = q;
    return WireOperation::differs(*wire_, two_level_->label(), q, shown);
}

void Fabric::wire_begin(const Call& call, const PlannerConfig& config, uint64_t sequence, int64_t timeout_ns) {
    int64_t deadline = deadline_after(monotonic_ns(), timeout_ns);
    Label label = label_of(call, wire_->rank(), wire_->size(), sequence);
    bool forced = config.wire_forced != nullptr || (forced_ != nullptr && forced_->kind == call.kind);
    layered_ = two_level_ != nullptr && (config.lanes_only || (!forced && takes_two_levels(call, config)));
    if (layered_ && config.lanes_only)
        return two_level_->begin_on_lanes(call, config, deadline, label);
    if (layered_)
        return two_level_->begin(call, config, deadline, label);
    wire_operation_->begin(call, config, forced_, ++wire_sequence_, deadline, label, double(wire_->size()));
}

void Fabric::set_profile(const LinkProfile& profile) {
    wire_operation_->planner().set_profile(profile.flat);
    if (two_level_ != nullptr)
        two_level_->set_profile(profile.lanes);
}

bool Fabric::active() const {
    return wire_ == nullptr ? operation_.active() : layered_ ? two_level_->active() : wire_operation_->active();
}

void Fabric::abandon() {
    if (wire_ == nullptr)
        operation_.abandon();
    else if (layered_)
        two_level_->abandon();
    else
        wire_operation_->abandon();
}

const Call& Fabric::call() const {
    return wire_ == nullptr ? operation_.call() : layered_ ? two_level_->call() : wire_operation_->call();
}

uint64_t Fabric::sequence() const {
    return wire_ == nullptr ? operation_.sequence()
           : layered_       ? two_level_->sequence()
                            : wire_operation_->label().sequence;
}

const Status& Fabric::failure() const {
    return wire_ == nullptr ? operation_.failure() : layered_ ? two_level_->failure() : wire_operation_->failure();
}

int Fabric::culprit() const {
    return wire_ == nullptr ? operation_.culprit() : layered_ ? two_level_->culprit() : wire_operation_->culprit();
}

std::vector<int> Fabric::missing_ranks() {
    return wire_ == nullptr ? operation_.missing_ranks()
           : layered_       ? two_level_->missing_ranks()
                            : wire_operation_->missing_ranks();
}

Group* Fabric::mismatch(int* place) const {
    if (wire_ != nullptr) {
        *place = layered_ ? two_level_->place_of_mismatch() : -1;
        return *place < 0 ? nullptr : &two_level_->local();
    }
    *place = operation_.culprit();
    bool seen = *place >= 0 && local_->arrived(*place, operation_.awaited_phase()) == Group::Arrival::mismatch;
    return seen ? local_.get() : nullptr;
}

int Fabric::rank_of(const Group& group, int place) const {
    return &group == local_.get() ? place : two_level_->rank_of_local(place);
}

} // namespace collectives
