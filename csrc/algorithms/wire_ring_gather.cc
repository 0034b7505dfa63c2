// All_gather as a ring: every block goes once round, in pieces, each rank passing on what it has just received. p - 1 rounds and
// (p-1) m bytes, as when all send to all, but each rank hears from one other alone: large blocks on a network where the
// ports are the limit, and several flows into one do not share it evenly. Blocks may be uneven; only data are moved.
#include "algorithms/wire_rows.h"

namespace collectives {
namespace {

void build(const Shape& s, Program& out) {
    const int p = s.world_size, next = behind(s, 1), previous = behind(s, p - 1);
    const Blocks& to = s.call->out;
    const int64_t segment = segment_elements(s);
    std::vector<int> arrived; // of the block that leaves in this round, its pieces; empty: the own one
    for (int t = 0; t < p - 1; ++t) {
        const int leaves = behind(s, p - t), comes = behind(s, p - 1 - t);
        const int64_t going = to.count_of(leaves), coming = to.count_of(comes);
        for (int64_t i = 0; i < segments(going, segment); ++i) {
            const int64_t offset = i * segment * s.element_bytes;
            out.send(next, t == 0 ? in_at(offset) : out_at(offset, leaves), piece_of(going, i, segment).count,
                     {t == 0 ? -1 : arrived[size_t(i)]}, going);
        }
        arrived.clear();
        for (int64_t i = 0; i < segments(coming, segment); ++i)
            arrived.push_back(out.receive(previous, out_at(i * segment * s.element_bytes, comes),
                                          piece_of(coming, i, segment).count, {}, coming));
    }
    copy_in_pieces(s, out, out_at(0, s.rank), in_at(), to.count_of(s.rank));
}

bool applies(const Shape& s) { return s.world_size > 2; } // of two ranks, it is the same as direct

} // namespace

const WireAlgorithm kAllGatherRing{
    "all_gather_ring", Collective::all_gather, true, "p-1 rounds; sends (p-1) m", applies, build};

} // namespace collectives
