// Binomial trees: broadcast down and reduce up, piece by piece. log2 p rounds; a rank sends its vector to at most log2 p others.
// For small vectors on many ranks, where the root's p-1 messages are what costs.
// Association of reduce: by subtrees of growing size, the nearer to the root first. Partial sums have the dtype's width, so
// half-width floats are left out.
#include "algorithms/wire_rows.h"

namespace collectives {
namespace {

/// The rank's place when the root is 0, and back.
int place_of(const Shape& s) { return (s.rank + s.world_size - s.call->root) % s.world_size; }
int rank_at(const Shape& s, int place) { return (place + s.call->root) % s.world_size; }

/// Places below this one: place + 1, place + 2, place + 4, ... as long as the bit is below its own lowest.
std::vector<int> children(const Shape& s) {
    std::vector<int> found;
    int place = place_of(s);
    for (int bit = 1; bit < s.world_size && (place & bit) == 0; bit *= 2)
        if (place + bit < s.world_size)
            found.push_back(place + bit);
    return found;
}
int parent(const Shape& s) {
    int place = place_of(s);
    return place & (place - 1);
}

void broadcast(const Shape& s, Program& out) {
    std::vector<int> below = children(s);
    int64_t segment = segment_elements(s);
    for (int64_t i = 0; i < std::max<int64_t>(1, segments(s.count, segment)); ++i) {
        Share p = piece_of(s.count, i, segment);
        int64_t offset = p.begin * s.element_bytes;
        int got = s.is_root() ? -1 : out.receive(rank_at(s, parent(s)), out_at(offset), p.count);
        for (size_t c = below.size(); c-- > 0;) // the deepest subtree first
            out.send(rank_at(s, below[c]), s.is_root() ? in_at(offset) : out_at(offset), p.count, {got});
    }
    if (s.is_root())
        copy_in_pieces(s, out, out_at(), in_at(), s.count);
}

void reduce(const Shape& s, Program& out) {
    std::vector<int> below = children(s);
    int64_t segment = segment_elements(s);
    int64_t slot_bytes = (std::min(segment, std::max<int64_t>(1, s.count)) * s.element_bytes + 63) / 64 * 64;
    int64_t slots = int64_t(below.size()) + 1; // one a child, and one for the sum
    int64_t scratch = out.take_scratch(kWindow * slots * slot_bytes);
    std::vector<int> freed(kWindow, -1);
    for (int64_t i = 0; i < segments(s.count, segment); ++i) {
        Share p = piece_of(s.count, i, segment);
        int64_t offset = p.begin * s.element_bytes, at = scratch + (i % kWindow) * slots * slot_bytes;
        int last = freed[size_t(i % kWindow)];
        std::vector<Place> srcs{in_at(offset)};
        std::vector<int> before{last};
        for (size_t c = 0; c < below.size(); ++c) {
            srcs.push_back(scratch_at(at + int64_t(c) * slot_bytes));
            before.push_back(out.receive(rank_at(s, below[c]), srcs.back(), p.count, {last}));
        }
        Place sum = s.is_root() ? out_at(offset) : scratch_at(at + int64_t(below.size()) * slot_bytes);
        int summed = -1;
        if (!below.empty())
            summed = out.reduce({&sum, 1}, srcs, p.count, before, s.is_root());
        freed[size_t(i % kWindow)] = summed;
        if (!s.is_root())
            freed[size_t(i % kWindow)] =
                out.send(rank_at(s, parent(s)), below.empty() ? in_at(offset) : sum, p.count, {summed});
    }
}

bool many(const Shape& s) { return s.world_size > 2; }
bool many_whole(const Shape& s) { return many(s) && info(s.call->dtype).kind != DTypeKind::half_float; }

} // namespace

const WireAlgorithm kBroadcastTree{
    "broadcast_tree", Collective::broadcast, true, "log2 p rounds; sends up to n log2 p", many, broadcast};
const WireAlgorithm kReduceTree{
    "reduce_tree", Collective::reduce, false, "log2 p rounds; sends n, the root none", many_whole, reduce};

} // namespace collectives
