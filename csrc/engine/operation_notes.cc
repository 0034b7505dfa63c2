// How the ranks of an operation learn where their buffers lie: in the shared heap, in private memory that can be pulled, or
// scattered. Either the first phase is one of notes, or, where that would be dear, a staged call shows in passing what the
// next one should try. Part of Operation (operation.h).
#include <cstring>

#include "engine/operation.h"

namespace collectives {
namespace {

constexpr int kNoteWords = 3; // of the input, of the output, and rank 0's choice of ways
static_assert(kNoteWords * sizeof(int64_t) <= kNoteRoomBytes);

/// Bytes of a side that lies in one piece; -1 when it does not.
int64_t whole_bytes(const Blocks& blocks, int n, int64_t element_bytes) {
    if (blocks.ptrs != nullptr)
        return -1;
    int64_t elements = 0;
    for (int i = 0; i < n; ++i) elements += blocks.count_of(i);
    return elements * element_bytes;
}

/// Whether a call with such buffers takes a mapped row: only all_reduce's writes into its peers' outputs.
bool all_mapped(const Call& call, bool in, bool out) { return in && (out || call.kind != Collective::all_reduce); }

uint64_t size_bit(const Shape& shape) { return uint64_t(1) << (63 - __builtin_clzll(uint64_t(shape.bytes()) | 1)); }

} // namespace

/// A note on where a buffer lies: its offset in the shared heap times two plus one, or its private address times two (an
/// user address has its top bits clear), or 0: not in one piece.
int64_t Operation::place_of(const Blocks& blocks, int n) const {
    LocalNode& node = group_.node();
    int64_t bytes = whole_bytes(blocks, n, shape_.element_bytes);
    if (bytes <= 0)
        return 0;
    if (node.owns(blocks.base, size_t(bytes)))
        return node.heap_offset(blocks.base) * 2 + 1;
    return int64_t(reinterpret_cast<uintptr_t>(blocks.base)) * 2;
}

Operation::Places Operation::places() const {
    int n_in = call_->kind == Collective::reduce_scatter ? group_.size() : 1;
    int n_out = call_->kind == Collective::all_gather ? group_.size() : 1;
    return {place_of(call_->in, n_in), place_of(call_->out, n_out)};
}

void Operation::write_notes() {
    Places own = places();
    int64_t words[kNoteWords] = {own.in, own.out, 0};
    if (turn_.kind == Turn::decide && group_.rank() == judge())
        words[2] = int64_t(chooser_.best(call_->kind, way_class_, config_.ways));
    std::memcpy(staging_of(group_.rank(), group_.phase() + 1), words, sizeof words);
}

void Operation::read_notes() {
    bool reachable_in = true, reachable_out = true;
    shape_.mapped_in = shape_.mapped_out = true;
    for (int q = 0; q < group_.size(); ++q) {
        int64_t words[kNoteWords];
        std::memcpy(words, staging_of(q, group_.phase()), sizeof words);
        shape_.mapped_in = shape_.mapped_in && (words[0] & 1) != 0;
        shape_.mapped_out = shape_.mapped_out && (words[1] & 1) != 0;
        reachable_in = reachable_in && words[0] != 0;
        reachable_out = reachable_out && words[1] != 0;
        peer_in_[size_t(q)] = peer_buffer(q, words[0]);
        peer_out_[size_t(q)] = peer_buffer(q, words[1]);
        if (turn_.kind == Turn::decide && q == judge()) {
            agreed_[int(call_->kind)].set(way_class_, Way(words[2]));
            take_way(Way(words[2]));
        }
    }
    bool pays = way_ == Way::pulled || pull_unit_bytes(shape_) >= shape_.pull_from_bytes;
    shape_.readable_in = shape_.mapped_in || (reachable_in && pays);
    shape_.readable_out = shape_.mapped_out || (reachable_out && pays);
    if (!all_mapped(*call_, shape_.mapped_in, shape_.mapped_out))
        seen_mapped_[int(call_->kind)] &= ~size_bit(shape_);
}

/// Below the size from which notes are always taken, one more exchange would be dear. There the first phase of a staged
/// call shows in passing whether the buffers are mapped, and the next call of such a size takes notes if all were. What
/// the ranks conclude is the same: each has read every rank's line of that phase.
void Operation::schedule_hint() {
    int64_t bytes = shape_.bytes() * (call_->kind == Collective::all_reduce ? 1 : shape_.world_size);
    bool learns = call_->kind == Collective::all_reduce || call_->kind == Collective::reduce_scatter ||
                  call_->kind == Collective::all_gather;
    hints_ = learns && !notes_ && bytes >= config_.mapped_hint_bytes && can_take_notes(shape_, config_);
    if (hints_ && (seen_mapped_[int(call_->kind)] & size_bit(shape_)) != 0) {
        notes_ = true;
        hints_ = false;
    }
}

void Operation::write_hint() {
    Places own = places();
    uint64_t word = all_mapped(*call_, (own.in & 1) != 0, (own.out & 1) != 0);
    std::memcpy(group_.self().control->lines[(group_.phase() + 1) & 1].payload, &word, sizeof word);
}

void Operation::read_hint() {
    uint64_t all = 1;
    for (int q = 0; q < group_.size(); ++q) {
        uint64_t word;
        std::memcpy(&word, group_.member(q).control->lines[group_.phase() & 1].payload, sizeof word);
        all &= word;
    }
    seen_mapped_[int(call_->kind)] |= all != 0 ? size_bit(shape_) : 0;
    hints_ = false;
}

/// The operation is given up, and a peer that is behind may still read this rank's buffers, and write its part of the
/// result: they must not become somebody else's before it has given up, too.
void Operation::hold_buffers() const {
    if (!notes_ && (algorithm_ == nullptr || (!algorithm_->mapped && !algorithm_->has_table)))
        return;
    LocalNode& node = group_.node();
    auto hold = [&](const Blocks& blocks, int n) {
        int64_t bytes = whole_bytes(blocks, n, shape_.element_bytes);
        if (bytes > 0 && node.owns(blocks.base, size_t(bytes)))
            node.hold(blocks.base, bytes, group_.nobody_looks());
    };
    bool block_for_each = call_->kind == Collective::reduce_scatter || call_->kind == Collective::all_to_all;
    hold(call_->in, block_for_each ? group_.size() : 1);
    if (call_->kind == Collective::all_reduce) // the one whose outputs peers write
        hold(call_->out, 1);
}

Operation::PeerBuffer Operation::peer_buffer(int q, int64_t place) {
    if ((place & 1) != 0)
        return {group_.member(q).heap + place / 2, 0};
    return {nullptr, uint64_t(place) / 2};
}

} // namespace collectives
