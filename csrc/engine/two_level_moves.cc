// The stages of broadcast and all_gather on two levels. See two_level.h.
#include <algorithm>

#include "engine/blocks.h"
#include "engine/two_level.h"

namespace collectives {
namespace {

uint8_t* start(const Blocks& blocks) {
    return static_cast<uint8_t*>(blocks.ptrs != nullptr ? blocks.ptrs[0] : blocks.base);
}

} // namespace

// ---- broadcast: within the root's host, on the lanes a share each, within the other hosts ----

/// A small one goes on one lane of the root's, straight from it.
void TwoLevel::plan_broadcast() {
    const int64_t n = call_->in.count_of(0), bytes = n * element_bytes(), chunks = chunks_of(bytes);
    const int root_host = layout_.host_of[size_t(call_->root)], root_place = layout_.place_of[size_t(call_->root)];
    const int only_lane = bytes < config_.chunk_bytes / 8 ? layout_.first_lane(root_host, root_place) : -1;
    for (int64_t i = 0; i < chunks; ++i) broadcast_chunk(share_of(n, int(i), int(chunks), element_bytes()), only_lane);
}

Share TwoLevel::share_of_broadcast(Share chunk, int lane, int only_lane) const {
    if (only_lane < 0)
        return layout_.of_vector(chunk.count, lane, element_bytes());
    return lane == only_lane ? Share{0, chunk.count} : Share{0, 0};
}

void TwoLevel::broadcast_chunk(Share chunk, int only_lane) {
    const int root_host = layout_.host_of[size_t(call_->root)];
    const bool root = rank_ == call_->root;
    const int64_t offset = chunk.begin * element_bytes();
    uint8_t *in = start(call_->in) + offset, *out = start(call_->out) + offset;
    Range here_first{n_stages_, n_stages_};
    if (host_ == root_host && here() > 1) {
        Stage& within = add_call(kWithin, Collective::broadcast);
        within.call.root = layout_.place_of[size_t(call_->root)];
        within.call.in = Blocks{root ? in : out, nullptr, nullptr, chunk.count};
        within.call.out = Blocks{out, nullptr, nullptr, chunk.count};
        here_first.end = n_stages_;
    }
    const int begin = n_stages_;
    for (int i = 0; i < own_lanes(); ++i) {
        const Share share = share_of_broadcast(chunk, lane_of(i), only_lane);
        if (share.count == 0)
            continue;
        Stage& cross = add_on_lane(i, Collective::broadcast, root ? Range{} : here_first);
        cross.call.root = root_host;
        cross.call.in = Blocks{(root ? in : out) + share.begin * element_bytes(), nullptr, nullptr, share.count};
        cross.call.out = Blocks{out + share.begin * element_bytes(), nullptr, nullptr, share.count};
    }
    if (host_ != root_host && here() > 1)
        spread_broadcast(chunk, only_lane, {begin, n_stages_});
}

void TwoLevel::spread_broadcast(Share chunk, int only_lane, Range crossed) {
    uint8_t* out = start(call_->out) + chunk.begin * element_bytes();
    if (only_lane >= 0) {
        Stage& one = add_call(kWithin, Collective::broadcast, crossed);
        one.call.root = layout_.driver(host_, only_lane);
        one.call.in = one.call.out = Blocks{out, nullptr, nullptr, chunk.count};
        return;
    }
    spread_chunk(chunk, crossed);
}

// ---- all_gather: on each lane all_gather, within the host what came to its ranks ----

void TwoLevel::plan_all_gather() {
    offsets_of(call_->out, element_bytes(), &offsets_);
    int64_t most = 0;
    for (int h = 0; h < layout_.hosts(); ++h)
        for (int l = 0; l < layout_.lanes; ++l) most = std::max(most, piece(call_->out, h, l, {}).count);
    const int64_t chunks = chunks_of(most * element_bytes() * layout_.hosts());
    gather_here(); // while the first chunk is between hosts
    for (int64_t i = 0; i < chunks; ++i) {
        const Chunk chunk{i, chunks};
        const int begin = n_stages_;
        for (int lane = 0; lane < own_lanes(); ++lane) gather_on_lane(lane, chunk);
        const Range crossed{begin, n_stages_};
        for (int h = 0; h < layout_.hosts(); ++h)
            for (int round = 0; h != host_ && here() > 1 && round < rounds_here(); ++round)
                gather_round(h, round, chunk, crossed);
    }
}

/// What a lane carries in a chunk of the block of the rank that drives it on host h; from the block's beginning.
Share TwoLevel::piece(const Blocks& blocks, int h, int lane, Chunk chunk) const {
    const Share whole = layout_.of_block(blocks.count_of(layout_.rank_at(h, lane)), h, lane, element_bytes());
    const Share part = share_of(whole.count, int(chunk.i), int(chunk.n), element_bytes());
    return {whole.begin + part.begin, part.count};
}

void TwoLevel::gather_here() {
    const Blocks& out = call_->out;
    if (here() == 1) {
        add_copies({}).copy(block(out, rank_), start(call_->in), out.count_of(rank_));
        return;
    }
    Stage& within = add_call(kWithin, Collective::all_gather);
    for (int q : layout_.ranks[size_t(host_)]) {
        within.out_ptrs.push_back(block(out, q));
        within.out_counts.push_back(out.count_of(q));
    }
    within.call.in = Blocks{start(call_->in), nullptr, nullptr, out.count_of(rank_)};
    within.call.out = Blocks{nullptr, within.out_ptrs.data(), within.out_counts.data(), 0};
}

void TwoLevel::gather_on_lane(int own_lane, Chunk chunk) {
    const Blocks& out = call_->out;
    const int lane = lane_of(own_lane);
    Stage& cross = add_on_lane(own_lane, Collective::all_gather);
    int64_t all = 0;
    for (int h = 0; h < layout_.hosts(); ++h) {
        const Share p = piece(out, h, lane, chunk);
        uint8_t* from = start(call_->in) + p.begin * element_bytes(); // the own block is in its place otherwise
        cross.out_ptrs.push_back(h == host_ ? from : at(out, h, lane, p));
        cross.out_counts.push_back(p.count);
        all += p.count;
    }
    if (all == 0)
        return drop_last();
    const size_t own = size_t(host_);
    cross.call.in = Blocks{cross.out_ptrs[own], nullptr, nullptr, cross.out_counts[own]};
    cross.call.out = Blocks{nullptr, cross.out_ptrs.data(), cross.out_counts.data(), 0};
}

/// What came from host h on one lane of each rank of this host, to the others of it.
void TwoLevel::gather_round(int h, int round, Chunk chunk, Range crossed) {
    Stage& within = add_call(kWithin, Collective::all_gather, crossed);
    int64_t all = 0;
    for (int j = 0; j < here(); ++j) {
        const bool drives = round < layout_.n_lanes(host_, j);
        const int lane = layout_.first_lane(host_, j) + round;
        const Share p = drives ? piece(call_->out, h, lane, chunk) : Share{0, 0};
        within.out_ptrs.push_back(drives ? at(call_->out, h, lane, p) : nullptr);
        within.out_counts.push_back(p.count);
        all += p.count;
    }
    if (all == 0)
        return drop_last();
    const size_t own = size_t(place_);
    within.call.in = Blocks{within.out_ptrs[own], nullptr, nullptr, within.out_counts[own]};
    within.call.out = Blocks{nullptr, within.out_ptrs.data(), within.out_counts.data(), 0};
}

} // namespace collectives
