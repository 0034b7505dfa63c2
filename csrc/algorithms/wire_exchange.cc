// Exchange: everybody sends its whole vector to everybody (to the root, for reduce), and each reduces all of them. One round,
// (p-1) n bytes sent a rank: the best for two ranks, and for small vectors on a few.
// Association: rank order, left to right; partial sums as wide as the kernel's accumulator.
#include "algorithms/wire_rows.h"

namespace collectives {
namespace {

void build(const Shape& s, Program& out, bool rooted) {
    const bool receives = !rooted || s.is_root();
    for (int d = 1; d < s.world_size; ++d)
        if (!rooted || behind(s, d) == s.call->root)
            out.send(behind(s, d), in_at(), s.count);
    if (!receives)
        return;
    std::vector<Place> srcs(static_cast<size_t>(s.world_size));
    std::vector<int> before;
    for (int q = 0; q < s.world_size; ++q) {
        srcs[size_t(q)] = in_at();
        if (q == s.rank)
            continue;
        srcs[size_t(q)] = scratch_at(out.take_scratch(s.bytes()));
        before.push_back(out.receive(q, srcs[size_t(q)], s.count));
    }
    // In place, the vector is written over when it is sent, not sooner.
    for (int i = 0; i < out.size(); ++i)
        if (out.action(i).kind == ActionKind::send)
            before.push_back(i);
    Place result = out_at();
    out.reduce({&result, 1}, srcs, s.count, before);
}

bool small(const Shape& s) { return s.bytes() * (s.world_size - 1) <= kExchangeBytes; }
void build_all(const Shape& s, Program& out) { build(s, out, false); }
void build_rooted(const Shape& s, Program& out) { build(s, out, true); }

} // namespace

const WireAlgorithm kAllReduceExchange{
    "all_reduce_exchange", Collective::all_reduce, true, "1 round; sends (p-1) n", small, build_all};
const WireAlgorithm kReduceExchange{"reduce_exchange", Collective::reduce, true, "1 round; sends n to the root", small,
                                    build_rooted};

} // namespace collectives
