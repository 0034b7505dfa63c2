// Direct two-shot between hosts, pipelined: rank r gets piece i of share r from everybody, reduces it, and sends the result to
// everybody (to the root, for reduce). 2 (p-1)/p n bytes sent a rank, the least there is, in two rounds.
// Association: rank order, left to right; partial sums as wide as the kernel's accumulator.
#include "algorithms/wire_rows.h"

namespace collectives {
namespace {

struct Builder {
    const Shape& s;
    Program& out;
    bool rooted;
    int64_t segment = segment_elements(s);
    bool receives = !rooted || s.is_root();
    bool publishes = !rooted || !s.is_root();
    int64_t slot_bytes = 0, scratch = 0, results = 0;
    std::vector<int> reduced{}, last_sent{};

    int64_t bytes(int64_t elements) const { return elements * s.element_bytes; }
    Place received(int q, int64_t i) const {
        return scratch_at(scratch + ((i % kWindow) * s.world_size + q) * slot_bytes);
    }
    /// Where the own result lies: in the output, or where there is none in scratch.
    Place result(Share p, int64_t i) const {
        return receives ? out_at(bytes(p.begin)) : scratch_at(results + (i % kWindow) * slot_bytes);
    }

    void build() {
        int64_t largest = largest_share(s.count, s.world_size, s.element_bytes);
        slot_bytes = (bytes(std::min(segment, largest)) + 63) / 64 * 64;
        scratch = out.take_scratch(kWindow * s.world_size * slot_bytes);
        results = receives ? 0 : out.take_scratch(kWindow * slot_bytes);
        int64_t n = segments(largest, segment);
        reduced.assign(size_t(n), -1);
        last_sent.assign(size_t(n), -1);
        std::vector<int> scattered(static_cast<size_t>(s.world_size), -1);
        for (int64_t i = 0; i < n; ++i) {
            for (int d = 1; d < s.world_size; ++d) {
                int q = behind(s, d);
                Share p = share_segment(s, q, i, segment);
                scattered[size_t(q)] = p.count > 0 ? out.send(q, in_at(bytes(p.begin)), p.count) : -1;
            }
            reduce_own(i);
            for (int d = 1; d < s.world_size && receives; ++d) {
                int q = behind(s, d);
                Share p = share_segment(s, q, i, segment);
                if (p.count > 0) // in place, it overwrites what was sent
                    out.receive(q, out_at(bytes(p.begin)), p.count, {scattered[size_t(q)]});
            }
        }
    }

    void reduce_own(int64_t i) {
        Share p = share_segment(s, s.rank, i, segment);
        if (p.count == 0)
            return;
        std::vector<Place> srcs(static_cast<size_t>(s.world_size));
        std::vector<int> before;
        for (int q = 0; q < s.world_size; ++q) {
            srcs[size_t(q)] = q == s.rank ? in_at(bytes(p.begin)) : received(q, i);
            if (q != s.rank)
                before.push_back(
                    out.receive(q, received(q, i), p.count, {i >= kWindow ? reduced[size_t(i - kWindow)] : -1}));
        }
        if (!receives && i >= kWindow)
            before.push_back(last_sent[size_t(i - kWindow)]); // its place is free again
        Place to = result(p, i);
        reduced[size_t(i)] = out.reduce({&to, 1}, srcs, p.count, before);
        for (int d = 1; d < s.world_size && publishes; ++d)
            if (!rooted || behind(s, d) == s.call->root)
                last_sent[size_t(i)] = out.send(behind(s, d), to, p.count, {reduced[size_t(i)]});
    }
};

bool always(const Shape&) { return true; }
void build_all(const Shape& s, Program& out) { Builder{s, out, false}.build(); }
void build_rooted(const Shape& s, Program& out) { Builder{s, out, true}.build(); }

} // namespace

const WireAlgorithm kAllReduceDirect{
    "all_reduce_direct", Collective::all_reduce, true, "2 rounds; sends 2 (p-1)/p n", always, build_all};
const WireAlgorithm kReduceDirect{"reduce_direct", Collective::reduce, true, "2 rounds; sends up to n",
                                  always,          build_rooted};

} // namespace collectives
