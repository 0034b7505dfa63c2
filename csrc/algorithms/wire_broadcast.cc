// Large broadcast as scatter and all_gather, pipelined: the root sends share q of the vector to rank q, which passes each piece
// on to all others. The root sends (2p-3)/p n at most instead of (p-1) n; the others up to (p-2)/p n.
#include "algorithms/wire_rows.h"

namespace collectives {
namespace {

void root(const Shape& s, Program& out, int64_t segment, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
        for (int d = 1; d < s.world_size; ++d)
            for (int part : {behind(s, d), s.rank}) {
                Share p = share_segment(s, part, i, segment);
                if (p.count > 0)
                    out.send(behind(s, d), in_at(p.begin * s.element_bytes), p.count);
            }
    copy_in_pieces(s, out, out_at(), in_at(), s.count);
}

void other(const Shape& s, Program& out, int64_t segment, int64_t n) {
    auto at = [&](Share p) { return out_at(p.begin * s.element_bytes); };
    for (int64_t i = 0; i < n; ++i) {
        Share own = share_segment(s, s.rank, i, segment), roots = share_segment(s, s.call->root, i, segment);
        int got = own.count > 0 ? out.receive(s.call->root, at(own), own.count) : -1;
        if (roots.count > 0)
            out.receive(s.call->root, at(roots), roots.count);
        for (int d = 1; d < s.world_size; ++d)
            if (behind(s, d) != s.call->root && own.count > 0)
                out.send(behind(s, d), at(own), own.count, {got});
        for (int d = 1; d < s.world_size; ++d) {
            int q = behind(s, s.world_size - d);
            Share p = share_segment(s, q, i, segment);
            if (q != s.call->root && p.count > 0)
                out.receive(q, at(p), p.count);
        }
    }
}

void build(const Shape& s, Program& out) {
    int64_t segment = segment_elements(s);
    int64_t n = segments(largest_share(s.count, s.world_size, s.element_bytes), segment);
    s.is_root() ? root(s, out, segment, n) : other(s, out, segment, n);
}

bool always(const Shape&) { return true; }

} // namespace

const WireAlgorithm kBroadcastScatterGather{
    "broadcast_scatter_gather", Collective::broadcast, true, "2 rounds; the root sends (2p-2)/p n", always, build};

} // namespace collectives
