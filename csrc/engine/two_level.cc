// Going through the stages, and what is wrong with the ranks that they are shared with. See two_level.h.
#include "engine/two_level.h"

#include <algorithm>

#include "base/check.h"
#include "engine/blocks.h"

namespace collectives {
namespace {

bool half_width(DType dtype) { return info(dtype).kind == DTypeKind::half_float; }

} // namespace

TwoLevel::TwoLevel(HostLayout layout, int rank, std::unique_ptr<Group> local,
                   std::vector<std::unique_ptr<WireGroup>> lanes)
    : layout_(std::move(layout)), rank_(rank), host_(layout_.host_of[size_t(rank)]),
      place_(layout_.place_of[size_t(rank)]), most_carried_(most_carried()), most_sources_(most_sources()),
      local_(std::move(local)), local_operation_(*local_), offsets_(layout_.host_of.size()) {
    int number = layout_.first_lane(host_, place_);
    for (auto& group : lanes) {
        auto operation = std::make_unique<WireOperation>(*group);
        lanes_.push_back({number++, std::move(group), std::move(operation), 0});
    }
}

bool TwoLevel::applies(const Call& call, bool deterministic) const {
    const bool sums_apart = !deterministic && !half_width(call.dtype);
    switch (call.kind) {
    case Collective::all_reduce:
    case Collective::reduce_scatter: return sums_apart;
    case Collective::broadcast:
    case Collective::all_gather: return true;
    case Collective::all_to_all: return exchanges(call);
    default: return false;
    }
}

void TwoLevel::set_profile(const LevelProfile& profile) {
    for (Lane& lane : lanes_) lane.operation->planner().set_profile(profile);
}

// ---- what stages are made of ----

TwoLevel::Stage& TwoLevel::add(int track, Range after) {
    if (int(stages_.size()) == n_stages_)
        stages_.emplace_back();
    Stage& stage = stages_[size_t(n_stages_++)];
    ++left_;
    stage.track = track;
    stage.copies = false;
    stage.after = after;
    stage.over = false;
    stage.call = Call{};
    stage.call.dtype = call_->dtype;
    stage.divisor = 1.0;
    stage.in_counts.clear();
    stage.out_counts.clear();
    stage.in_ptrs.clear();
    stage.out_ptrs.clear();
    return stage;
}

TwoLevel::Stage& TwoLevel::add_call(int track, Collective kind, Range after) {
    Stage& stage = add(track, after);
    stage.call.kind = kind;
    return stage;
}

TwoLevel::Stage& TwoLevel::add_on_lane(int own_lane, Collective kind, Range after) {
    Stage& stage = add_call(kBetween, kind, after);
    stage.lane = own_lane;
    return stage;
}

TwoLevel::Stage& TwoLevel::add_copies(Range after) {
    Stage& stage = add(kWithin, after);
    stage.copies = true;
    return stage;
}

void TwoLevel::Stage::copy(void* to, void* from, int64_t count) {
    out_ptrs.push_back(to);
    in_ptrs.push_back(from);
    in_counts.push_back(count);
}

/// The last stage moves nothing, which all of its ranks know.
void TwoLevel::drop_last() {
    --n_stages_;
    --left_;
}

uint8_t* TwoLevel::block(const Blocks& blocks, int q) const {
    return block_start(blocks, q, element_bytes(), offsets_);
}

/// What the ranks of a host, or the hosts before the last sum, apply.
ReduceOp TwoLevel::plain_op() const {
    return call_->op == ReduceOp::avg || call_->op == ReduceOp::premul_sum ? ReduceOp::sum : call_->op;
}

int64_t TwoLevel::chunks_of(int64_t bytes) const {
    constexpr int64_t kMostChunks = 32;
    return std::clamp<int64_t>(bytes / config_.chunk_bytes, 1, kMostChunks);
}

/// Of the memory between the levels, so many bytes from its beginning. Once for a plan.
uint8_t* TwoLevel::take_scratch(int64_t bytes) {
    constexpr size_t kLine = 64;
    COLLECTIVES_CHECK(bytes <= kScratchBytes);
    if (scratch_.size() < size_t(bytes) + kLine)
        scratch_.resize(size_t(bytes) + kLine);
    return scratch_.data() + (kLine - reinterpret_cast<uintptr_t>(scratch_.data()) % kLine) % kLine;
}

void TwoLevel::start_planning(const Call& call, const PlannerConfig& config, int64_t deadline_ns, const Label& label) {
    call_ = &call;
    config_ = config;
    label_ = label;
    deadline_ns_ = deadline_ns;
    n_stages_ = left_ = 0;
    tracks_[kWithin] = tracks_[kBetween] = Track{};
}

void TwoLevel::begin(const Call& call, const PlannerConfig& config, int64_t deadline_ns, const Label& label) {
    start_planning(call, config, deadline_ns, label);
    switch (call.kind) {
    case Collective::all_reduce: plan_all_reduce(); break;
    case Collective::broadcast: plan_broadcast(); break;
    case Collective::all_gather: plan_all_gather(); break;
    case Collective::reduce_scatter: plan_reduce_scatter(); break;
    case Collective::all_to_all: plan_all_to_all(); break;
    default: COLLECTIVES_CHECK(false);
    }
}

void TwoLevel::begin_on_lanes(const Call& call, const PlannerConfig& config, int64_t deadline_ns, const Label& label) {
    start_planning(call, config, deadline_ns, label);
    for (int i = 0; i < own_lanes(); ++i) add_on_lane(i, call.kind).call = call;
}

// ---- going through them ----

void TwoLevel::run_copies(const Stage& stage) const {
    const DType dtype = stage.call.dtype;
    for (size_t i = 0; i < stage.in_ptrs.size(); ++i) {
        const int64_t count = stage.in_counts[i];
        if (count == 0)
            continue;
        if (stage.call.op == ReduceOp::premul_sum)
            kernels::scale_fn(dtype)(stage.out_ptrs[i], stage.in_ptrs[i], count, call_->factor_re, call_->factor_im);
        else if (stage.out_ptrs[i] != stage.in_ptrs[i])
            kernels::copy_fn(kernels::Store::plain)(stage.out_ptrs[i], stage.in_ptrs[i],
                                                    count * int64_t(size_of(dtype)));
    }
}

/// False: the stage was copies, and is over.
bool TwoLevel::begin_stage(Stage& stage) {
    if (stage.copies) {
        run_copies(stage);
        return false;
    }
    if (stage.track == kWithin) {
        local_operation_.begin(stage.call, config_, label_.sequence, &label_);
        return true;
    }
    Lane& lane = lanes_[size_t(stage.lane)];
    lane.operation->begin(stage.call, config_, nullptr, ++lane.sequence, deadline_ns_, label_, stage.divisor);
    return true;
}

/// Goes through the stages of one track as far as it can without waiting.
Operation::State TwoLevel::advance(int number) {
    Track& track = tracks_[number];
    for (; track.next < n_stages_; ++track.next) {
        Stage& stage = stages_[size_t(track.next)];
        if (stage.track != number)
            continue;
        if (!track.begun) {
            for (int i = stage.after.begin; i < stage.after.end; ++i)
                if (!stages_[size_t(i)].over)
                    return Operation::State::blocked;
            track.begun = begin_stage(stage);
        }
        if (track.begun) {
            Operation::State state = number == kWithin ? local_operation_.advance() : current().advance();
            if (state == Operation::State::failed)
                return fail(number);
            if (state != Operation::State::done)
                return state;
        }
        track.begun = false;
        stage.over = true;
        --left_;
        ++finished_;
    }
    return Operation::State::done;
}

/// Again as long as a stage ends, which others may wait for.
Operation::State TwoLevel::advance() {
    for (uint64_t before = finished_ - 1; before != finished_ && left_ > 0;) {
        before = finished_;
        for (int track : {kWithin, kBetween})
            if (advance(track) == Operation::State::failed)
                return Operation::State::failed;
    }
    return left_ == 0 ? Operation::State::done : Operation::State::blocked;
}

/// The operation of this track has failed; that of the other is given up.
Operation::State TwoLevel::fail(int track) {
    failure_ = track == kWithin ? local_operation_.failure() : current().failure();
    const int q = track == kWithin ? local_operation_.culprit() : current().culprit();
    culprit_ = q < 0              ? -1
               : track == kWithin ? rank_of_local(q)
                                  : rank_on(stages_[size_t(tracks_[kBetween].next)].lane, q);
    failed_within_ = track == kWithin;
    if (failed_within_ && call_->kind == Collective::all_to_all && failure_.code() == Code::mismatch &&
        place_of_mismatch() < 0)
        failure_ = blocks_differ(q);
    tracks_[track].begun = false;
    abandon();
    return Operation::State::failed;
}

/// The shared-memory level speaks of what it was to move, several blocks together; this of the call.
Status TwoLevel::blocks_differ(int place) const {
    return Status(Code::mismatch, describe(*call_, rank_) + " #" + std::to_string(label_.sequence) + " of group '" +
                                      local_->name() + "': the blocks of " + local_->name_of(place) +
                                      " have another size than those of " + local_->name_of(place_) +
                                      "; without splits all ranks' blocks must have the same size");
}

void TwoLevel::abandon() {
    if (in_progress(kWithin))
        local_operation_.abandon();
    if (in_progress(kBetween))
        current().abandon();
    left_ = 0;
}

/// Those that the lane waits for, which the others of this host wait for too; else those of this host.
std::vector<int> TwoLevel::missing_ranks() {
    std::vector<int> ranks;
    if (in_progress(kBetween))
        for (int q : current().missing_ranks())
            ranks.push_back(rank_on(stages_[size_t(tracks_[kBetween].next)].lane, q));
    if (ranks.empty() && in_progress(kWithin))
        for (int q : local_operation_.missing_ranks()) ranks.push_back(rank_of_local(q));
    return ranks;
}

uint64_t TwoLevel::mark() const {
    uint64_t sum = finished_ + local_->phase();
    for (const Lane& lane : lanes_) sum += lane.operation->mark();
    return sum;
}

Status TwoLevel::peer_trouble(bool waiting, int* culprit) {
    bool within = waiting && in_progress(kWithin);
    int q = -1;
    Status status = local_->peer_trouble(within ? local_operation_.awaited_phase() : 0, &q);
    *culprit = q < 0 ? -1 : rank_of_local(q);
    for (int i = 0; status.ok() && i < own_lanes(); ++i) {
        q = -1;
        status = lanes_[size_t(i)].group->peer_trouble(&q);
        *culprit = status.ok() || q < 0 ? -1 : rank_on(i, q);
    }
    return status;
}

int TwoLevel::place_of_mismatch() const {
    int q = failed_within_ ? local_operation_.culprit() : -1;
    return q >= 0 && local_->arrived(q, local_operation_.awaited_phase()) == Group::Arrival::mismatch ? q : -1;
}

bool TwoLevel::is_dead(int q) const {
    return layout_.host_of[size_t(q)] == host_ && local_->is_dead(layout_.place_of[size_t(q)]);
}

void TwoLevel::publish_failure(Code code, int culprit, const std::string& text) {
    int q = culprit >= 0 && layout_.host_of[size_t(culprit)] == host_ ? layout_.place_of[size_t(culprit)] : -1;
    local_->publish_failure(code, q, text);
}

Status TwoLevel::known_failure(int* culprit) const {
    int q = -1;
    Status status = local_->known_failure(&q);
    *culprit = status.ok() || q < 0 ? -1 : rank_of_local(q);
    return status;
}

} // namespace collectives
