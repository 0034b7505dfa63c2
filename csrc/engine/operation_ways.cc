// Which way an operation's data goes: the turns of WayChooser (ways.h) as ranks that cannot talk take them together.
// Part of Operation (operation.h).
#include <algorithm>
#include <bit>

#include "base/clock.h"
#include "engine/operation.h"

namespace collectives {

/// What this call does about ways: the same on all ranks, for all have made the same calls of this size.
void Operation::schedule_way() {
    turn_ = {};
    way_ = Way::staged;
    timed_ = waited_ = false;
    if (std::popcount(config_.ways) < 2)
        return;
    if (call_->kind == Collective::all_to_all)
        return schedule_blocks();
    if (config_.forced != nullptr && config_.forced->kind == call_->kind && config_.forced->mapped) {
        if ((config_.ways & way_bit(Way::pulled)) != 0)
            take_way(Way::pulled); // the row that was asked for applies wherever it can
        return;
    }
    int64_t unit = pull_unit_bytes(shape_);
    if (unit < kWaysFromBytes || !can_take_notes(shape_, config_))
        return;
    way_class_ = way_class(unit);
    turn_ = chooser_.next_turn(call_->kind, way_class_, config_.ways);
    take_way(turn_.kind == Turn::try_one ? turn_.way : agreed_[int(call_->kind)].of(unit));
    timed_ = turn_.kind == Turn::try_one && group_.rank() == judge();
    timed_way_ = way_;
    first_wait_started_ns_ = 0;
    if (timed_)
        way_started_ns_ = monotonic_ns();
}

/// all_to_all: the blocks have sizes of their own, and the ranks know only theirs. All go by the ways that rank 0 showed
/// with its last table; rank 0 times every call and counts it among those of its largest block.
void Operation::schedule_blocks() {
    shape_.block_ways = agreed_[int(call_->kind)];
    int64_t largest = 0;
    for (int q = 0; q < group_.size(); ++q) largest = std::max(largest, call_->in.count_of(q));
    largest *= shape_.element_bytes;
    timed_ = group_.rank() == 0 && largest >= kWaysFromBytes;
    if (!timed_)
        return;
    way_class_ = way_class(largest);
    timed_way_ = shape_.block_ways.of(largest);
    first_wait_started_ns_ = 0;
    way_started_ns_ = monotonic_ns();
}

/// The rank whose times count: 0, but not the root of a broadcast, which is done when it has written.
int Operation::judge() const { return call_->kind == Collective::broadcast && call_->root == 0 ? 1 : 0; }

void Operation::take_way(Way way) {
    way_ = way;
    if (way == Way::streamed || (config_.ways & way_bit(Way::staged)) == 0)
        shape_.stage_store = kernels::Store::streaming;
    else if (way == Way::staged)
        shape_.stage_store = kernels::Store::plain;
}

/// How long peers took to arrive says nothing about the way: it is left out.
void Operation::first_wait_is_over() {
    waited_ = true;
    if (first_wait_started_ns_ != 0)
        way_started_ns_ += monotonic_ns() - first_wait_started_ns_;
}

void Operation::finish_way() {
    int64_t ns = monotonic_ns() - way_started_ns_;
    if (call_->kind != Collective::all_to_all) {
        // Else the buffers did not let it go that way: mapped ones are read where they are.
        if ((timed_way_ == Way::pulled) == algorithm_->mapped && !(algorithm_->mapped && shape_.mapped_in))
            chooser_.record(call_->kind, way_class_, timed_way_, ns);
        return;
    }
    if ((shape_.own_place & 1) == 0) // not mapped
        chooser_.record(call_->kind, way_class_, timed_way_, ns);
    Turn next = chooser_.next_turn(call_->kind, way_class_, config_.ways);
    wanted_blocks_.set(way_class_,
                       next.kind == Turn::try_one ? next.way : chooser_.best(call_->kind, way_class_, config_.ways));
}

} // namespace collectives
