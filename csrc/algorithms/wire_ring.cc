// Ring: the vector is cut in p shares, and each goes once round to be summed and once more to be spread, piece by piece. 2 (p-1)
// rounds, 2 (p-1)/p n bytes, each rank talking to two others alone: for very large vectors on a network with little
// bandwidth across.
// Association: share q is summed along the ring, beginning behind its owner q: ranks q+1, q+2, ..., q; the same on all ranks.
// Partial sums have the dtype's width, so half-width floats are left out.
#include "algorithms/wire_rows.h"

namespace collectives {
namespace {

void build(const Shape& s, Program& out) {
    const int p = s.world_size, next = (s.rank + 1) % p, previous = (s.rank + p - 1) % p;
    const int64_t segment = segment_elements(s);
    const int64_t n = segments(largest_share(s.count, p, s.element_bytes), segment);
    int64_t slot_bytes = (std::min(segment, std::max<int64_t>(1, s.count)) * s.element_bytes + 63) / 64 * 64;
    int64_t scratch = out.take_scratch(slot_bytes * kWindow * (p - 1));
    std::vector<int> used(size_t(kWindow * (p - 1)), -1); // the reduction that freed a place
    for (int64_t i = 0; i < n; ++i) {
        int ready = -1;
        std::vector<int> sent(static_cast<size_t>(p),
                              -1); // of each share, its send to the next rank on the first way round
        for (int t = 0; t < p - 1; ++t) {
            int leaves = (s.rank + 2 * p - 1 - t) % p, comes = (s.rank + 2 * p - 2 - t) % p;
            Share going = share_segment(s, leaves, i, segment), coming = share_segment(s, comes, i, segment);
            if (going.count > 0)
                sent[size_t(leaves)] = out.send(
                    next, t == 0 ? in_at(going.begin * s.element_bytes) : out_at(going.begin * s.element_bytes),
                    going.count, {ready});
            ready = -1;
            if (coming.count == 0)
                continue;
            size_t place = size_t((i % kWindow) * (p - 1) + t);
            Place got = scratch_at(scratch + int64_t(place) * slot_bytes);
            int received = out.receive(previous, got, coming.count, {used[place]});
            Place to = out_at(coming.begin * s.element_bytes);
            Place srcs[2] = {got, in_at(coming.begin * s.element_bytes)};
            const int before[1] = {received};
            ready = used[place] = out.reduce({&to, 1}, srcs, coming.count, before, t == p - 2);
        }
        // The own share is whole now, and goes round.
        for (int t = 0; t < p - 1; ++t) {
            int leaves = (s.rank + p - t) % p, comes = (s.rank + 2 * p - 1 - t) % p;
            Share going = share_segment(s, leaves, i, segment), coming = share_segment(s, comes, i, segment);
            if (going.count > 0)
                out.send(next, out_at(going.begin * s.element_bytes), going.count, {ready});
            ready = -1;
            if (coming.count > 0)
                ready =
                    out.receive(previous, out_at(coming.begin * s.element_bytes), coming.count, {sent[size_t(comes)]});
        }
    }
}

bool applies(const Shape& s) { return info(s.call->dtype).kind != DTypeKind::half_float && s.world_size > 2; }

} // namespace

const WireAlgorithm kAllReduceRing{
    "all_reduce_ring", Collective::all_reduce, false, "2 (p-1) rounds; sends 2 (p-1)/p n", applies, build};

} // namespace collectives
