// The stages of each collective, and going through them. See two_level.h.
#include "engine/two_level.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "engine/wire_join.h"

namespace collectives {
namespace {

uint8_t* start(const Blocks& blocks) {
    return static_cast<uint8_t*>(blocks.ptrs != nullptr ? blocks.ptrs[0] : blocks.base);
}

constexpr int64_t kMostChunks = 32;

bool half_width(DType dtype) { return info(dtype).kind == DTypeKind::half_float; }

} // namespace

HostLayout HostLayout::of(const std::vector<Hello>& hellos) {
    HostLayout layout;
    std::vector<size_t> first; // a rank of each host
    for (size_t q = 0; q < hellos.size(); ++q) {
        size_t h = 0;
        while (h < first.size() && !same_host(hellos[first[h]], hellos[q])) ++h;
        if (h == first.size()) {
            first.push_back(q);
            layout.ranks.emplace_back();
        }
        layout.host_of.push_back(int(h));
        layout.place_of.push_back(int(layout.ranks[h].size()));
        layout.ranks[h].push_back(int(q));
    }
    layout.even = true;
    layout.lanes = int(layout.ranks[0].size());
    int next = 0;
    for (const auto& ranks : layout.ranks) {
        layout.even = layout.even && ranks.size() == layout.ranks[0].size();
        layout.lanes = std::min(layout.lanes, int(ranks.size()));
        for (int q : ranks) layout.even = layout.even && q == next++;
    }
    return layout;
}

TwoLevel::TwoLevel(HostLayout layout, int rank, std::unique_ptr<Group> local, std::unique_ptr<WireGroup> lane)
    : layout_(std::move(layout)), rank_(rank), host_(layout_.host_of[size_t(rank)]),
      place_(layout_.place_of[size_t(rank)]), local_(std::move(local)), local_operation_(*local_),
      lane_(std::move(lane)) {
    if (lane_ != nullptr)
        lane_operation_ = std::make_unique<WireOperation>(*lane_);
}

bool TwoLevel::applies(const Call& call, bool deterministic) const {
    bool sums_apart = !deterministic && !half_width(call.dtype);
    switch (call.kind) {
    case Collective::all_reduce: return sums_apart;
    case Collective::reduce_scatter: return sums_apart && layout_.even;
    case Collective::broadcast: return true;
    case Collective::all_gather: return layout_.even;
    default: return false;
    }
}

TwoLevel::Stage& TwoLevel::add(Level level) {
    if (int(stages_.size()) == n_stages_)
        stages_.emplace_back();
    Stage& stage = stages_[size_t(n_stages_++)];
    ++left_;
    stage.level = level;
    stage.after = -1;
    stage.over = false;
    stage.call = Call{};
    stage.call.dtype = call_->dtype;
    stage.divisor = 1.0;
    return stage;
}

TwoLevel::Stage& TwoLevel::add_after_last(Level level) {
    int last = n_stages_ - 1;
    Stage& stage = add(level);
    stage.after = last;
    return stage;
}

int64_t TwoLevel::block_offset(const Blocks& blocks, int block) const {
    int64_t elements = 0;
    for (int q = 0; q < block; ++q) elements += blocks.count_of(q);
    return elements * int64_t(size_of(call_->dtype));
}

/// Reduce-scatter within the host, all_reduce of each share between hosts, all_gather within the host; chunk by chunk.
void TwoLevel::plan_all_reduce() {
    const int64_t n = call_->in.count_of(0), size = int64_t(size_of(call_->dtype));
    const int chunks = int(std::clamp<int64_t>(n * size / config_.chunk_bytes, 1, kMostChunks));
    Share last{0, 0};
    int last_between = -1;
    for (int i = 0; i < chunks; ++i) {
        Share chunk = share_of(n, i, chunks, size);
        int within = -1, between = -1;
        plan_chunk(chunk, &within, &between);
        if (i > 0)
            spread_chunk(last, last_between); // after the next one is summed: the link has that one to carry meanwhile
        last = chunk;
        last_between = between >= 0 ? between : within;
    }
    spread_chunk(last, last_between);
}

/// The chunk's sum over this host's ranks in shares, and each share's over the hosts. The numbers of the stages; -1: none.
void TwoLevel::plan_chunk(Share chunk, int* within, int* between) {
    const int64_t size = int64_t(size_of(call_->dtype));
    uint8_t *in = start(call_->in) + chunk.begin * size, *out = start(call_->out) + chunk.begin * size;
    const bool scales = call_->op == ReduceOp::premul_sum, alone = local_->size() == 1;
    const ReduceOp plain = call_->op == ReduceOp::avg || scales ? ReduceOp::sum : call_->op;
    const Share mine = share_of_lane(chunk.count, place_);
    uint8_t* share = out + mine.begin * size;

    Stage& sum = add(alone ? Level::copy : Level::local);
    sum.call.op = scales || alone ? call_->op : plain;
    sum.call.factor_re = call_->factor_re;
    sum.call.factor_im = call_->factor_im;
    sum.call.in = sum.call.out = Blocks{in, nullptr, nullptr, chunk.count};
    sum.call.out.base = out;
    if (!alone) {
        sum.call.kind = Collective::reduce_scatter;
        sum.in_counts = shares_of_lanes(chunk.count);
        sum.call.in = Blocks{in, nullptr, sum.in_counts.data(), 0};
        sum.call.out = Blocks{share, nullptr, nullptr, mine.count};
    }
    *within = n_stages_ - 1;
    if (mine.count == 0)
        return;
    Stage& cross = add_after_last(Level::lane);
    cross.call.kind = Collective::all_reduce;
    cross.call.op = call_->op == ReduceOp::avg ? ReduceOp::avg : plain;
    cross.divisor = double(layout_.host_of.size());
    cross.call.in = cross.call.out = Blocks{share, nullptr, nullptr, mine.count};
    *between = n_stages_ - 1;
}

/// The shares of a chunk to all ranks of this host.
void TwoLevel::spread_chunk(Share chunk, int after) {
    if (local_->size() == 1)
        return;
    const int64_t size = int64_t(size_of(call_->dtype));
    uint8_t* out = start(call_->out) + chunk.begin * size;
    const Share mine = share_of_lane(chunk.count, place_);
    Stage& spread = add(Level::local);
    spread.after = after;
    spread.call.kind = Collective::all_gather;
    spread.out_counts = shares_of_lanes(chunk.count);
    spread.call.in = Blocks{out + mine.begin * size, nullptr, nullptr, mine.count};
    spread.call.out = Blocks{out, nullptr, spread.out_counts.data(), 0};
}

/// What the lane of a place carries of so many elements; nothing where it has none.
Share TwoLevel::share_of_lane(int64_t count, int place) const {
    if (place >= layout_.lanes)
        return {0, 0};
    return share_of(count, place, layout_.lanes, int64_t(size_of(call_->dtype)));
}

std::vector<int64_t> TwoLevel::shares_of_lanes(int64_t count) const {
    std::vector<int64_t> counts;
    for (int j = 0; j < local_->size(); ++j) counts.push_back(share_of_lane(count, j).count);
    return counts;
}

/// The root's host first gives it to the lane that carries it, which passes it on to its host.
void TwoLevel::plan_broadcast() {
    const int root = call_->root, root_host = layout_.host_of[size_t(root)],
              root_place = layout_.place_of[size_t(root)];
    const int lane = root_place < layout_.lanes ? root_place : 0;
    const bool at_root = host_ == root_host;
    uint8_t *in = start(call_->in), *out = start(call_->out);
    int64_t n = call_->in.count_of(0);
    auto stage = [&](Level level, int from, bool sends) {
        Stage& s = add_after_last(level);
        s.call.kind = Collective::broadcast;
        s.call.root = from;
        s.call.in = Blocks{sends ? in : out, nullptr, nullptr, n};
        s.call.out = Blocks{out, nullptr, nullptr, n};
    };
    if (at_root && local_->size() > 1)
        stage(Level::local, root_place, rank_ == root);
    else if (at_root) {
        Stage& whole = add_after_last(Level::copy);
        whole.call.in = Blocks{in, nullptr, nullptr, n};
        whole.call.out = Blocks{out, nullptr, nullptr, n};
    }
    if (place_ == lane)
        stage(Level::lane, root_host, false); // out of what the first stage wrote
    if (!at_root && local_->size() > 1)
        stage(Level::local, lane, false);
}

/// Each rank's block to those of its place on all hosts, and then, host by host, to the others of this host.
void TwoLevel::plan_all_gather() {
    const int m = local_->size(), hosts = layout_.hosts();
    auto place_of_block = [&](int q) -> void* { // empty blocks may lie nowhere
        if (call_->out.ptrs != nullptr)
            return call_->out.ptrs[q];
        return static_cast<uint8_t*>(call_->out.base) + block_offset(call_->out, q);
    };
    Stage& between = add_after_last(Level::lane);
    between.call.kind = Collective::all_gather;
    between.call.in = Blocks{start(call_->in), nullptr, nullptr, call_->in.count_of(0)};
    between.out_ptrs.resize(size_t(hosts));
    between.out_counts.resize(size_t(hosts));
    for (int h = 0; h < hosts; ++h) {
        between.out_ptrs[size_t(h)] = place_of_block(rank_of_lane(h));
        between.out_counts[size_t(h)] = call_->out.count_of(rank_of_lane(h));
    }
    between.call.out = Blocks{nullptr, between.out_ptrs.data(), between.out_counts.data(), 0};
    for (int h = 0; h < hosts && m > 1; ++h) {
        Stage& within = add_after_last(Level::local);
        within.call.kind = Collective::all_gather;
        within.out_ptrs.resize(size_t(m));
        within.out_counts.resize(size_t(m));
        for (int j = 0; j < m; ++j) {
            int q = layout_.ranks[size_t(h)][size_t(j)];
            within.out_ptrs[size_t(j)] = place_of_block(q);
            within.out_counts[size_t(j)] = call_->out.count_of(q);
        }
        within.call.in = Blocks{within.out_ptrs[size_t(place_)], nullptr, nullptr, within.out_counts[size_t(place_)]};
        within.call.out = Blocks{nullptr, within.out_ptrs.data(), within.out_counts.data(), 0};
    }
}

/// Host by host, the blocks for its ranks are summed within this one; then each rank gets its own from its lane.
void TwoLevel::plan_reduce_scatter() {
    const int m = local_->size(), hosts = layout_.hosts();
    const int64_t size = int64_t(size_of(call_->dtype));
    const bool scales = call_->op == ReduceOp::premul_sum;
    ReduceOp plain = call_->op == ReduceOp::avg || scales ? ReduceOp::sum : call_->op;
    int64_t total = 0;
    for (int h = 0; h < hosts; ++h) total += (call_->in.count_of(rank_of_lane(h)) * size + 63) / 64 * 64;
    if (int64_t(scratch_.size()) < total + 64)
        scratch_.resize(size_t(total + 64));
    uint8_t* at = scratch_.data();
    std::vector<void*> blocks;
    for (int h = 0; h < hosts; ++h) {
        Stage& within = add_after_last(m > 1 ? Level::local : Level::copy);
        int64_t own = call_->in.count_of(rank_of_lane(h));
        within.call.kind = Collective::reduce_scatter;
        within.call.op = scales ? call_->op : plain;
        within.call.factor_re = call_->factor_re;
        within.call.factor_im = call_->factor_im;
        within.in_ptrs.resize(size_t(m));
        within.in_counts.resize(size_t(m));
        for (int j = 0; j < m; ++j) {
            int q = layout_.ranks[size_t(h)][size_t(j)];
            within.in_ptrs[size_t(j)] = call_->in.ptrs != nullptr
                                            ? call_->in.ptrs[q]
                                            : static_cast<uint8_t*>(call_->in.base) + block_offset(call_->in, q);
            within.in_counts[size_t(j)] = call_->in.count_of(q);
        }
        within.call.in = Blocks{nullptr, within.in_ptrs.data(), within.in_counts.data(), own};
        within.call.out = Blocks{at, nullptr, nullptr, own};
        blocks.push_back(at);
        at += (own * size + 63) / 64 * 64;
    }
    Stage& between = add_after_last(Level::lane);
    between.call.kind = Collective::reduce_scatter;
    between.call.op = call_->op == ReduceOp::avg ? ReduceOp::avg : plain;
    between.divisor = double(layout_.host_of.size());
    between.in_ptrs = std::move(blocks);
    between.in_counts.resize(size_t(hosts));
    for (int h = 0; h < hosts; ++h) between.in_counts[size_t(h)] = call_->in.count_of(rank_of_lane(h));
    between.call.in = Blocks{nullptr, between.in_ptrs.data(), between.in_counts.data(), 0};
    between.call.out = Blocks{start(call_->out), nullptr, nullptr, call_->out.count_of(0)};
}

void TwoLevel::start_planning(const Call& call, const PlannerConfig& config, int64_t deadline_ns, const Label& label) {
    call_ = &call;
    config_ = config;
    label_ = label;
    deadline_ns_ = deadline_ns;
    n_stages_ = left_ = 0;
    track_[0] = track_[1] = Track{};
}

void TwoLevel::begin(const Call& call, const PlannerConfig& config, int64_t deadline_ns, const Label& label) {
    start_planning(call, config, deadline_ns, label);
    switch (call.kind) {
    case Collective::all_reduce: plan_all_reduce(); break;
    case Collective::broadcast: plan_broadcast(); break;
    case Collective::all_gather: plan_all_gather(); break;
    case Collective::reduce_scatter: plan_reduce_scatter(); break;
    default: COLLECTIVES_CHECK(false);
    }
}

void TwoLevel::begin_on_lanes(const Call& call, const PlannerConfig& config, int64_t deadline_ns, const Label& label) {
    start_planning(call, config, deadline_ns, label);
    if (lane_operation_ != nullptr)
        add(Level::lane).call = call;
}

void TwoLevel::copy(const Stage& stage) {
    const Blocks& in = stage.call.in;
    int64_t count = in.count_of(0);
    uint8_t *from = start(in), *to = start(stage.call.out);
    if (count == 0)
        return;
    if (stage.call.op == ReduceOp::premul_sum)
        kernels::scale_fn(stage.call.dtype)(to, from, count, stage.call.factor_re, stage.call.factor_im);
    else if (from != to)
        kernels::copy_fn(kernels::Store::plain)(to, from, count * int64_t(size_of(stage.call.dtype)));
}

/// False: the stage was a copy, and is over.
bool TwoLevel::begin_stage(Stage& stage) {
    if (stage.level == Level::copy) {
        copy(stage);
        return false;
    }
    if (stage.level == Level::local)
        local_operation_.begin(stage.call, config_, label_.sequence, &label_);
    else
        lane_operation_->begin(stage.call, config_, nullptr, ++lane_sequence_, deadline_ns_, label_, stage.divisor);
    return true;
}

/// Goes through the stages of one level as far as it can without waiting.
Operation::State TwoLevel::advance(bool lane, bool* moved) {
    Track& track = track_[lane];
    for (; track.next < n_stages_; ++track.next) {
        Stage& stage = stages_[size_t(track.next)];
        if ((stage.level == Level::lane) != lane)
            continue;
        if (!track.begun) {
            if (stage.after >= 0 && !stages_[size_t(stage.after)].over)
                return Operation::State::blocked;
            track.begun = begin_stage(stage);
        }
        if (track.begun) {
            Operation::State state = lane ? lane_operation_->advance() : local_operation_.advance();
            if (state == Operation::State::failed)
                return fail(lane);
            if (state != Operation::State::done)
                return state;
        }
        track.begun = false;
        stage.over = true;
        --left_;
        ++finished_;
        *moved = true;
    }
    return Operation::State::done;
}

Operation::State TwoLevel::advance() {
    for (bool moved = true; moved && left_ > 0;) {
        moved = false;
        for (bool lane : {false, true})
            if (advance(lane, &moved) == Operation::State::failed)
                return Operation::State::failed;
    }
    return left_ == 0 ? Operation::State::done : Operation::State::blocked;
}

/// The operation of this level has failed; that of the other is given up.
Operation::State TwoLevel::fail(bool lane) {
    failure_ = lane ? lane_operation_->failure() : local_operation_.failure();
    int q = lane ? lane_operation_->culprit() : local_operation_.culprit();
    culprit_ = q < 0 ? -1 : lane ? rank_of_lane(q) : rank_of_local(q);
    failed_within_ = !lane;
    track_[lane].begun = false;
    abandon();
    return Operation::State::failed;
}

void TwoLevel::abandon() {
    if (in_progress(false))
        local_operation_.abandon();
    if (in_progress(true))
        lane_operation_->abandon();
    left_ = 0;
}

/// Those that the lane waits for, which the others of this host wait for too; else those of this host.
std::vector<int> TwoLevel::missing_ranks() {
    std::vector<int> ranks;
    if (in_progress(true))
        for (int q : lane_operation_->missing_ranks()) ranks.push_back(rank_of_lane(q));
    if (ranks.empty() && in_progress(false))
        for (int q : local_operation_.missing_ranks()) ranks.push_back(rank_of_local(q));
    return ranks;
}

uint64_t TwoLevel::mark() const {
    return finished_ + local_->phase() + (lane_operation_ != nullptr ? lane_operation_->mark() : 0);
}

Status TwoLevel::peer_trouble(bool waiting, int* culprit) {
    bool within = waiting && in_progress(false);
    int q = -1;
    Status status = local_->peer_trouble(within ? local_operation_.awaited_phase() : 0, &q);
    if (!status.ok()) {
        *culprit = q < 0 ? -1 : rank_of_local(q);
        return status;
    }
    if (lane_ == nullptr)
        return {};
    status = lane_->peer_trouble(&q);
    *culprit = status.ok() || q < 0 ? -1 : rank_of_lane(q);
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
