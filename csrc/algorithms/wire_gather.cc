// Collectives that only move data, each block straight from its owner to its receiver: all_gather, all_to_all, gather, scatter,
// small broadcasts and the barrier. Blocks may be uneven. One round.
#include "algorithms/wire_rows.h"

namespace collectives {
namespace {

/// A block in pieces, so that several connections share it. Empty blocks travel, too, where the receiver must learn that
/// they are. Returns the last of them, or `turn`.
int send_block(const Shape& s, Program& out, int to, Place from, int64_t count, bool even_empty, int turn = -1,
               int after = -1) {
    int64_t segment = segment_elements(s);
    int last = turn;
    for (int64_t i = 0; i < segments(count, segment); ++i) {
        Place piece = from;
        piece.offset_bytes += i * segment * s.element_bytes;
        last = out.send(to, piece, piece_of(count, i, segment).count, {turn, after}, count);
    }
    if (count == 0 && even_empty)
        last = out.send(to, from, 0, {turn, after});
    return last;
}

/// Large blocks go to one peer after the other, every rank beginning with another one: on each way into a rank there is one
/// stream at a time, and no two that the network would have to share out. Small ones go at once.
int turn_after(const Shape& s, int64_t count, int last) { return count > segment_elements(s) ? last : -1; }
void receive_block(const Shape& s, Program& out, int from, int block, int64_t count, bool even_empty) {
    int64_t segment = segment_elements(s);
    for (int64_t i = 0; i < segments(count, segment); ++i)
        out.receive(from, out_at(i * segment * s.element_bytes, block), piece_of(count, i, segment).count, {}, count);
    if (count == 0 && even_empty)
        out.receive(from, out_at(0, block), 0);
}

void all_gather(const Shape& s, Program& out) {
    const Blocks& to = s.call->out;
    const int64_t own = to.count_of(s.rank);
    for (int d = 1, last = -1; d < s.world_size; ++d)
        last = send_block(s, out, behind(s, d), in_at(), own, false, turn_after(s, own, last));
    for (int d = 1; d < s.world_size; ++d) {
        int q = behind(s, s.world_size - d);
        receive_block(s, out, q, q, to.count_of(q), false);
    }
    copy_in_pieces(s, out, out_at(0, s.rank), in_at(), to.count_of(s.rank));
}

/// In place, a block would be overwritten by the one that comes before it has gone: it leaves from scratch.
void all_to_all(const Shape& s, Program& out) {
    const Blocks &from = s.call->in, &to = s.call->out;
    int64_t segment = segment_elements(s);
    std::vector<int> saved(static_cast<size_t>(s.world_size), -1);
    std::vector<Place> places(static_cast<size_t>(s.world_size));
    for (int d = 1; d < s.world_size; ++d) {
        int q = behind(s, d);
        places[size_t(q)] = in_at(0, q);
        if (!in_place(*s.call) || from.count_of(q) == 0)
            continue;
        places[size_t(q)] = scratch_at(out.take_scratch(from.count_of(q) * s.element_bytes));
        saved[size_t(q)] = out.copy(places[size_t(q)], in_at(0, q), from.count_of(q));
    }
    for (int d = 1, last = -1; d < s.world_size; ++d) {
        int q = behind(s, d), turn = turn_after(s, from.count_of(q), last);
        last = send_block(s, out, q, places[size_t(q)], from.count_of(q), true, turn, saved[size_t(q)]);
    }
    for (int d = 1; d < s.world_size; ++d) {
        int q = behind(s, s.world_size - d);
        int64_t count = to.count_of(q);
        for (int64_t i = 0; i < std::max<int64_t>(1, segments(count, segment)); ++i)
            out.receive(q, out_at(i * segment * s.element_bytes, q), piece_of(count, i, segment).count,
                        {saved[size_t(q)]}, count);
    }
    copy_in_pieces(s, out, out_at(0, s.rank), in_at(0, s.rank), from.count_of(s.rank));
}

void gather(const Shape& s, Program& out) {
    if (!s.is_root())
        return void(send_block(s, out, s.call->root, in_at(), s.call->in.count_of(0), true));
    for (int d = 1; d < s.world_size; ++d)
        receive_block(s, out, behind(s, d), behind(s, d), s.call->out.count_of(behind(s, d)), true);
    copy_in_pieces(s, out, out_at(0, s.rank), in_at(), s.call->in.count_of(0));
}

void scatter(const Shape& s, Program& out) {
    if (!s.is_root())
        return receive_block(s, out, s.call->root, 0, s.call->out.count_of(0), true);
    for (int d = 1; d < s.world_size; ++d)
        send_block(s, out, behind(s, d), in_at(0, behind(s, d)), s.call->in.count_of(behind(s, d)), true);
    copy_in_pieces(s, out, out_at(), in_at(0, s.rank), s.call->in.count_of(s.rank));
}

void broadcast(const Shape& s, Program& out) {
    if (!s.is_root())
        return receive_block(s, out, s.call->root, 0, s.count, true);
    for (int d = 1; d < s.world_size; ++d) send_block(s, out, behind(s, d), in_at(), s.count, true);
    copy_in_pieces(s, out, out_at(), in_at(), s.count);
}

void barrier(const Shape& s, Program& out) {
    for (int d = 1; d < s.world_size; ++d) out.send(behind(s, d), in_at(), 0);
    for (int d = 1; d < s.world_size; ++d) out.receive(behind(s, d), out_at(), 0);
}

bool always(const Shape&) { return true; }
bool small_or_two(const Shape& s) { return s.world_size == 2 || s.bytes() <= kExchangeBytes; }

} // namespace

const WireAlgorithm kAllGatherDirect{
    "all_gather_direct", Collective::all_gather, true, "1 round; sends (p-1) m", always, all_gather};
const WireAlgorithm kAllToAllPairwise{
    "all_to_all_pairwise", Collective::all_to_all, true, "1 round; sends (p-1)/p n", always, all_to_all};
const WireAlgorithm kGatherDirect{"gather_direct", Collective::gather, true, "1 round; sends m to the root", always,
                                  gather};
const WireAlgorithm kScatterDirect{
    "scatter_direct", Collective::scatter, true, "1 round; the root sends (p-1) m", always, scatter};
const WireAlgorithm kBroadcastDirect{
    "broadcast_direct", Collective::broadcast, true, "1 round; the root sends (p-1) n", small_or_two, broadcast};
const WireAlgorithm kBarrierDirect{"barrier_direct", Collective::barrier, true, "1 round of empty frames", always,
                                   barrier};

} // namespace collectives
