// Direct reduce_scatter, even or uneven: every rank sends each its block and reduces what it gets for its own, piece by piece.
// One round, (p-1)/p n bytes sent a rank. Association: rank order, left to right.
#include "algorithms/wire_rows.h"

namespace collectives {
namespace {

void build(const Shape& s, Program& out) {
    const Blocks& in = s.call->in;
    int64_t segment = segment_elements(s), own = in.count_of(s.rank);
    int64_t slot_bytes = (std::min(segment, own) * s.element_bytes + 63) / 64 * 64;
    int64_t scratch = out.take_scratch(kWindow * s.world_size * slot_bytes);
    std::vector<int> reduced(size_t(segments(own, segment)), -1);
    std::vector<Place> srcs(static_cast<size_t>(s.world_size));
    for (int64_t i = 0; i < segments(s.count, segment); ++i) {
        int64_t offset = i * segment * s.element_bytes;
        std::vector<int> before;
        for (int d = 1; d < s.world_size; ++d) {
            int q = behind(s, d);
            Share p = piece_of(in.count_of(q), i, segment);
            if (p.count > 0)
                before.push_back(out.send(q, in_at(offset, q), p.count));
        }
        if (!in_place(*s.call))
            before.clear(); // in place, the output is block 0 of the input
        Share p = piece_of(own, i, segment);
        if (p.count == 0)
            continue;
        for (int q = 0; q < s.world_size; ++q) {
            if (q == s.rank) {
                srcs[size_t(q)] = in_at(offset, q);
                continue;
            }
            srcs[size_t(q)] = scratch_at(scratch + ((i % kWindow) * s.world_size + q) * slot_bytes);
            before.push_back(
                out.receive(q, srcs[size_t(q)], p.count, {i >= kWindow ? reduced[size_t(i - kWindow)] : -1}));
        }
        Place to = out_at(offset);
        reduced[size_t(i)] = out.reduce({&to, 1}, srcs, p.count, before);
    }
}

bool always(const Shape&) { return true; }

} // namespace

const WireAlgorithm kReduceScatterDirect{
    "reduce_scatter_direct", Collective::reduce_scatter, true, "1 round; sends (p-1)/p n", always, build};

} // namespace collectives
