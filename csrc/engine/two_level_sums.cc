// The stages of all_reduce and reduce_scatter on two levels. See two_level.h.
#include <algorithm>

#include "engine/blocks.h"
#include "engine/two_level.h"

namespace collectives {
namespace {

uint8_t* start(const Blocks& blocks) {
    return static_cast<uint8_t*>(blocks.ptrs != nullptr ? blocks.ptrs[0] : blocks.base);
}

int64_t lines(int64_t bytes) { return (bytes + 63) / 64; }

} // namespace

/// Sums within the host, of the caller's numbers.
void TwoLevel::set_first_sum(Stage* stage) const {
    stage->call.op = call_->op == ReduceOp::premul_sum ? call_->op : plain_op();
    stage->call.factor_re = call_->factor_re;
    stage->call.factor_im = call_->factor_im;
}

/// And those between hosts, of the hosts' sums.
void TwoLevel::set_last_sum(Stage* stage) const {
    stage->call.op = call_->op == ReduceOp::avg ? ReduceOp::avg : plain_op();
    stage->divisor = double(layout_.world_size());
}

// ---- all_reduce: within the host reduce_scatter to the lanes, on each lane all_reduce, within the host all_gather ----

void TwoLevel::plan_all_reduce() {
    const int64_t n = call_->in.count_of(0), chunks = chunks_of(n * element_bytes());
    Share last{0, 0};
    Range crossed{};
    for (int64_t i = 0; i < chunks; ++i) {
        const Share chunk = share_of(n, int(i), int(chunks), element_bytes());
        const Range summed = sum_chunk(chunk);
        if (i > 0)
            spread_chunk(last, crossed); // after the next one is summed: the link has that one to carry meanwhile
        crossed = cross_chunk(chunk, summed);
        last = chunk;
    }
    spread_chunk(last, crossed);
}

/// What the lanes of a place carry of a vector: one piece.
Share TwoLevel::share_of_place(int64_t count, int place) const {
    Share all{0, 0};
    for (int l = layout_.first_lane(host_, place); l < layout_.first_lane(host_, place + 1); ++l) {
        const Share one = layout_.of_vector(count, l, element_bytes());
        if (all.count == 0)
            all.begin = one.begin;
        all.count += one.count;
    }
    return all;
}

TwoLevel::Range TwoLevel::sum_chunk(Share chunk) {
    uint8_t *in = start(call_->in) + chunk.begin * element_bytes(),
            *out = start(call_->out) + chunk.begin * element_bytes();
    const Range summed{n_stages_, n_stages_ + 1};
    if (here() == 1) {
        Stage& own = add_copies({});
        set_first_sum(&own);
        own.copy(out, in, chunk.count);
        return summed;
    }
    Stage& sum = add_call(kWithin, Collective::reduce_scatter, {});
    set_first_sum(&sum);
    for (int j = 0; j < here(); ++j) sum.in_counts.push_back(share_of_place(chunk.count, j).count);
    const Share mine = share_of_place(chunk.count, place_);
    sum.call.in = Blocks{in, nullptr, sum.in_counts.data(), 0};
    sum.call.out = Blocks{out + mine.begin * element_bytes(), nullptr, nullptr, mine.count};
    return summed;
}

TwoLevel::Range TwoLevel::cross_chunk(Share chunk, Range summed) {
    const int begin = n_stages_;
    for (int i = 0; i < own_lanes(); ++i) {
        const Share share = layout_.of_vector(chunk.count, lane_of(i), element_bytes());
        if (share.count == 0)
            continue;
        uint8_t* at = start(call_->out) + (chunk.begin + share.begin) * element_bytes();
        Stage& cross = add_on_lane(i, Collective::all_reduce, summed);
        set_last_sum(&cross);
        cross.call.in = cross.call.out = Blocks{at, nullptr, nullptr, share.count};
    }
    return {begin, n_stages_};
}

void TwoLevel::spread_chunk(Share chunk, Range crossed) {
    if (here() == 1)
        return;
    uint8_t* out = start(call_->out) + chunk.begin * element_bytes();
    const Share mine = share_of_place(chunk.count, place_);
    Stage& spread = add_call(kWithin, Collective::all_gather, crossed);
    for (int j = 0; j < here(); ++j) spread.out_counts.push_back(share_of_place(chunk.count, j).count);
    spread.call.in = Blocks{out + mine.begin * element_bytes(), nullptr, nullptr, mine.count};
    spread.call.out = Blocks{out, nullptr, spread.out_counts.data(), 0};
}

// ---- reduce_scatter: within the host, what a lane carries to the rank that drives it; on each lane reduce_scatter ----

/// In chunks whose sums fit into half of the scratch memory, so that one is made while another is between hosts.
void TwoLevel::plan_reduce_scatter() {
    offsets_of(call_->in, element_bytes(), &offsets_);
    const int64_t chunks = lay_out_slots();
    Range before_last{}, last{};
    for (int64_t i = 0; i < chunks; ++i) {
        const Chunk chunk{i, chunks};
        const Range summed = sum_blocks(chunk, before_last);
        before_last = last;
        last = cross_blocks(chunk, summed);
    }
}

/// The own lanes' pieces of the blocks of all hosts, in scratch, twice. How many chunks there are is the same on all ranks.
int64_t TwoLevel::lay_out_slots() {
    int64_t most = 0;
    for (int h = 0; h < layout_.hosts(); ++h)
        for (int l = 0; l < layout_.lanes; ++l)
            most = std::max(most, piece(call_->in, h, l, {}).count * element_bytes());
    const int64_t slots = int64_t(layout_.hosts()) * layout_.most_lanes_of_a_rank();
    const int64_t half = std::min(kScratchBytes / 2, config_.chunk_bytes);
    const int64_t lines_of_slot = std::max<int64_t>(1, half / slots / 64);
    const int64_t chunks = std::max<int64_t>(1, (lines(most) + lines_of_slot - 1) / lines_of_slot);
    slots_.clear();
    slot_bytes_ = 0;
    for (int h = 0; h < layout_.hosts(); ++h)
        for (int i = 0; i < own_lanes(); ++i) {
            slots_.push_back(slot_bytes_);
            slot_bytes_ += 64 * lines(piece(call_->in, h, lane_of(i), {0, chunks}).count * element_bytes());
        }
    scratch_begin_ = uses_slots() ? take_scratch(2 * slot_bytes_) : nullptr;
    return chunks;
}

/// A rank that is alone on its host sends out of the caller's memory.
bool TwoLevel::uses_slots() const { return here() > 1 || call_->op == ReduceOp::premul_sum; }

uint8_t* TwoLevel::slot(int h, int own_lane, Chunk chunk) const {
    return scratch_begin_ + chunk.i % 2 * slot_bytes_ + slots_[size_t(h * own_lanes() + own_lane)];
}

/// Where a lane's piece of the block of the rank that drives it on host h lies.
uint8_t* TwoLevel::at(const Blocks& blocks, int h, int lane, Share piece) const {
    return block(blocks, layout_.rank_at(h, lane)) + piece.begin * element_bytes();
}

TwoLevel::Range TwoLevel::sum_blocks(Chunk chunk, Range after) {
    const int begin = n_stages_;
    if (here() == 1 && uses_slots()) {
        Stage& scale = add_copies(after);
        set_first_sum(&scale);
        for (int h = 0; h < layout_.hosts(); ++h)
            for (int i = 0; i < own_lanes(); ++i) {
                const Share p = piece(call_->in, h, lane_of(i), chunk);
                scale.copy(slot(h, i, chunk), at(call_->in, h, lane_of(i), p), p.count);
            }
    }
    for (int h = 0; here() > 1 && h < layout_.hosts(); ++h)
        for (int round = 0; round < rounds_here(); ++round) sum_round(h, round, chunk, after);
    return {begin, n_stages_};
}

/// Of each place's lanes as many as the place with the most has.
int TwoLevel::rounds_here() const {
    int rounds = 0;
    for (int j = 0; j < here(); ++j) rounds = std::max(rounds, layout_.n_lanes(host_, j));
    return rounds;
}

void TwoLevel::sum_round(int h, int round, Chunk chunk, Range after) {
    Stage& sum = add_call(kWithin, Collective::reduce_scatter, after);
    set_first_sum(&sum);
    int64_t all = 0;
    for (int j = 0; j < here(); ++j) {
        const bool drives = round < layout_.n_lanes(host_, j);
        const int lane = layout_.first_lane(host_, j) + round;
        const Share p = drives ? piece(call_->in, h, lane, chunk) : Share{0, 0};
        sum.in_counts.push_back(p.count);
        sum.in_ptrs.push_back(drives ? at(call_->in, h, lane, p) : nullptr);
        all += p.count;
    }
    if (all == 0)
        return drop_last();
    uint8_t* to = round < own_lanes() ? slot(h, round, chunk) : nullptr;
    sum.call.in = Blocks{nullptr, sum.in_ptrs.data(), sum.in_counts.data(), 0};
    sum.call.out = Blocks{to, nullptr, nullptr, sum.in_counts[size_t(place_)]};
}

TwoLevel::Range TwoLevel::cross_blocks(Chunk chunk, Range summed) {
    const int begin = n_stages_;
    for (int i = 0; i < own_lanes(); ++i) {
        const int lane = lane_of(i);
        Stage& cross = add_on_lane(i, Collective::reduce_scatter, summed);
        set_last_sum(&cross);
        int64_t all = 0;
        for (int h = 0; h < layout_.hosts(); ++h) {
            const Share p = piece(call_->in, h, lane, chunk);
            cross.in_counts.push_back(p.count);
            cross.in_ptrs.push_back(uses_slots() ? slot(h, i, chunk) : at(call_->in, h, lane, p));
            all += p.count;
        }
        if (all == 0) {
            drop_last();
            continue;
        }
        const Share mine = piece(call_->in, host_, lane, chunk);
        cross.call.in = Blocks{nullptr, cross.in_ptrs.data(), cross.in_counts.data(), 0};
        cross.call.out = Blocks{start(call_->out) + mine.begin * element_bytes(), nullptr, nullptr, mine.count};
    }
    return {begin, n_stages_};
}

} // namespace collectives
