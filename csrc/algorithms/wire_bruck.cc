// Bruck's all_to_all (Bruck et al., "Efficient Algorithms for All-to-All Communications in Multiport Message-Passing
// Systems", IEEE TPDS 1997): ceil(log2 p) rounds for any p, each one frame of about p/2 blocks. A block that has to go i ranks
// ahead travels in the rounds of i's bits, the lowest first. It sends log2(p)/2 times the bytes of pairwise, in log2(p)
// frames instead of p-1: for blocks so small that a frame's work outweighs its bytes.
// Every rank has to know how large the others' blocks are: for calls without splits only.
#include "algorithms/wire_rows.h"

namespace collectives {
namespace {

constexpr int64_t kBruckBytes = 1 << 20; // of scratch

/// Of the distances 1 to p-1, those with this bit.
int blocks_of_round(int world_size, int bit) {
    int n = 0;
    for (int i = 1; i < world_size; ++i) n += (i & bit) != 0;
    return n;
}

/// What leaves and what arrives has a place of its own in each round: no round waits for the memory of another.
int64_t scratch_of(const Shape& s) {
    int64_t blocks = 0;
    for (int bit = 1; bit < s.world_size; bit *= 2) blocks += 2 * blocks_of_round(s.world_size, bit);
    return blocks * s.bytes();
}

struct Builder {
    const Shape& s;
    Program& out;
    // By distance that a block has to go from the rank that it started at:
    std::vector<Place> places{};             // where it lies now,
    std::vector<int> arrived{}, picked_up{}; // the receive that brought it there, and the copy out of the input

    void build() {
        places.resize(size_t(s.world_size));
        arrived.assign(size_t(s.world_size), -1);
        picked_up.assign(size_t(s.world_size), -1);
        for (int i = 1; i < s.world_size; ++i) places[size_t(i)] = in_at(0, behind(s, i));
        for (int bit = 1; bit < s.world_size; bit *= 2) round(bit);
        deliver();
    }

    void round(int bit) {
        const int n = blocks_of_round(s.world_size, bit);
        const int64_t leaving = out.take_scratch(n * s.bytes()), arriving = out.take_scratch(n * s.bytes());
        const int receive = out.receive(behind(s, s.world_size - bit), scratch_at(arriving), n * s.count, {}, s.count);
        int64_t offset = 0;
        std::vector<int> packed;
        for (int i = bit; i < s.world_size; ++i) {
            if ((i & bit) == 0)
                continue;
            const size_t at = size_t(i);
            packed.push_back(out.copy(scratch_at(leaving + offset), places[at], s.count, {arrived[at]}));
            if (arrived[at] < 0)
                picked_up[at] = packed.back();
            places[at] = scratch_at(arriving + offset);
            arrived[at] = receive;
            offset += s.bytes();
        }
        out.send(behind(s, bit), scratch_at(leaving), n * s.count, packed, s.count);
    }

    /// What had to go i ranks ahead has come from the i-th rank before this one. In place, it overwrites the block for
    /// that rank, which must have been picked up.
    void deliver() {
        for (int i = 1; i < s.world_size; ++i) {
            const int back = s.world_size - i;
            out.copy(out_at(0, behind(s, back)), places[size_t(i)], s.count,
                     {arrived[size_t(i)], picked_up[size_t(back)]});
        }
        out.copy(out_at(0, s.rank), in_at(0, s.rank), s.count);
    }
};

bool small_and_even(const Shape& s) {
    return s.world_size > 3 && s.count > 0 && s.call->in.counts == nullptr && s.call->out.counts == nullptr &&
           scratch_of(s) <= kBruckBytes;
}
void build(const Shape& s, Program& out) { Builder{s, out}.build(); }

} // namespace

const WireAlgorithm kAllToAllBruck{
    "all_to_all_bruck", Collective::all_to_all, true, "log2 p rounds; sends n/2 log2 p", small_and_even, build, true};

} // namespace collectives
