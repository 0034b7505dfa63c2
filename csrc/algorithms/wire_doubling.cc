// Recursive doubling and halving for any number of ranks. With p no power of two, the first ranks fold: of 2i and 2i+1 the even one
// gives its vector to the odd one, which takes part for both, and gets the result at the end.
//
// - all_reduce_doubling: log2 p rounds, the whole vector in each: the fewest rounds there are. For small vectors.
// - all_reduce_halving (Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004): in each round half of
//   what is left is exchanged and reduced, then the way back: 2 log2 p rounds, 2 (p-1)/p n bytes.
//
// Association: by pairs of growing (doubling) or shrinking (halving) distance, the lower rank's first; the same on all ranks.
// Partial sums have the dtype's width, so half-width floats are left out.
#include <bit>

#include "algorithms/wire_rows.h"

namespace collectives {
namespace {

struct Folded {
    int power;        // ranks that take part: a power of two
    int extra;        // pairs that fold
    int me;           // number among those that take part; -1: folded away
    int partner = -1; // the other of the pair

    explicit Folded(const Shape& s) {
        power = int(std::bit_floor(unsigned(s.world_size)));
        extra = s.world_size - power;
        me = s.rank < 2 * extra ? (s.rank % 2 == 1 ? s.rank / 2 : -1) : s.rank - extra;
        if (s.rank < 2 * extra)
            partner = s.rank ^ 1;
    }
    int rank_of(int number) const { return number < extra ? 2 * number + 1 : number + extra; }
};

/// What a rank does, whichever way the rounds go.
struct Builder {
    const Shape& s;
    Program& out;
    Folded f{s};
    std::vector<int> sent{}; // sends out of the input or output, which it may not be written over before
    int current = -1;        // the action after which `held` is what this rank has summed
    bool from_input = true;  // it is still the input

    Place held(int64_t offset = 0) const { return from_input ? in_at(offset) : out_at(offset); }

    /// Receives `count` elements into scratch and adds them to what is held at `offset`.
    void add(int peer, int64_t offset, int64_t count, bool lower, bool finishes, std::vector<int> after) {
        Place got = scratch_at(out.take_scratch(count * s.element_bytes));
        after.push_back(out.receive(peer, got, count));
        after.push_back(current);
        Place to = out_at(offset), own = held(offset);
        Place srcs[2] = {lower ? got : own, lower ? own : got};
        reduced = out.reduce({&to, 1}, srcs, count, after, finishes);
    }
    int reduced = -1;

    /// The pairs fold; false: this rank has nothing more to do but to get the result.
    bool fold() {
        if (f.partner < 0)
            return true;
        if (f.me < 0) {
            int gone = out.send(f.partner, in_at(), s.count);
            out.receive(f.partner, out_at(), s.count, {gone});
            return false;
        }
        add(f.partner, 0, s.count, true, false, {});
        current = reduced;
        from_input = false;
        return true;
    }
    void unfold() {
        if (f.partner >= 0 && f.me >= 0)
            out.send(f.partner, out_at(), s.count, {current});
    }
};

void doubling(const Shape& s, Program& out) {
    Builder b{s, out};
    if (s.count == 0 || !b.fold())
        return;
    for (int distance = 1; distance < b.f.power; distance *= 2) {
        int other = b.f.me ^ distance, peer = b.f.rank_of(other);
        int gone = out.send(peer, b.held(), s.count, {b.current});
        b.add(peer, 0, s.count, other < b.f.me, distance * 2 == b.f.power, {gone});
        b.current = b.reduced;
        b.from_input = false;
    }
    b.unfold();
}

void halving(const Shape& s, Program& out) {
    Builder b{s, out};
    if (!b.fold())
        return;
    const int power = b.f.power, me = b.f.me;
    auto range = [&](int first, int last) { // of parts, in elements
        int64_t begin = share_of(s.count, first, power, s.element_bytes).begin;
        int64_t end = last == power ? s.count : share_of(s.count, last, power, s.element_bytes).begin;
        return Share{begin, end - begin};
    };
    auto bytes = [&](int64_t elements) { return elements * s.element_bytes; };
    int first = 0, last = power;
    struct Round {
        int peer;
        Share mine, theirs;
        int gone;
    };
    std::vector<Round> rounds;
    for (int distance = power / 2; distance >= 1; distance /= 2) {
        int other = me ^ distance, peer = b.f.rank_of(other), middle = (first + last) / 2;
        bool low = me < other;
        Share mine = low ? range(first, middle) : range(middle, last),
              theirs = low ? range(middle, last) : range(first, middle);
        int gone = theirs.count > 0 ? out.send(peer, b.held(bytes(theirs.begin)), theirs.count, {b.current}) : -1;
        b.reduced = b.current;
        if (mine.count > 0)
            b.add(peer, bytes(mine.begin), mine.count, other < me, distance == 1, {});
        b.current = b.reduced;
        b.from_input = false;
        rounds.push_back({peer, mine, theirs, gone});
        (low ? last : first) = middle;
    }
    for (size_t i = rounds.size(); i-- > 0;) {
        const Round& round = rounds[i];
        int whole = b.current;
        if (round.mine.count > 0)
            out.send(round.peer, out_at(bytes(round.mine.begin)), round.mine.count, {whole});
        if (round.theirs.count > 0) {
            // After the range so far, so that one action stands for all of it.
            b.current =
                out.receive(round.peer, out_at(bytes(round.theirs.begin)), round.theirs.count, {round.gone, whole});
        }
    }
    b.unfold();
}

bool whole_width(const Shape& s) { return info(s.call->dtype).kind != DTypeKind::half_float; }
bool small(const Shape& s) { return whole_width(s) && s.world_size > 2 && s.bytes() <= kDoublingBytes; }
bool large(const Shape& s) { return whole_width(s) && s.world_size > 2; }

} // namespace

const WireAlgorithm kAllReduceDoubling{
    "all_reduce_doubling", Collective::all_reduce, false, "log2 p rounds; sends n log2 p", small, doubling};
const WireAlgorithm kAllReduceHalving{
    "all_reduce_halving", Collective::all_reduce, false, "2 log2 p rounds; sends 2 (p-1)/p n", large, halving};

} // namespace collectives
