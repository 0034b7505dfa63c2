// Every program between hosts, run by a simulator that takes any order the program allows: of all that may happen next one
// thing is taken by chance, a send's bytes are read at any time until it ends, and messages wait for their receives. Whatever
// the order, the result must be the reference's, nothing may stay behind, and sends must meet receives.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "algorithms/program.h"

using namespace collectives;

namespace {

using Values = std::vector<int64_t>;

struct Setting {
    Collective kind;
    int ranks;
    int64_t count; // of the vector, or of a block
    bool in_place;
    bool uneven;
    int root;
};

constexpr int64_t kPieceBytes = 64;

int64_t pair_count(const Setting& s, int from, int to) {
    return s.uneven ? (s.count + 3 * from + to) % (s.count + 2) : s.count;
}
int64_t block_count(const Setting& s, int q) { return s.uneven && q % 2 == 1 ? s.count / 2 : s.count; }
int64_t value(int rank, int64_t i) { return 1000 * (rank + 1) + i; }

template <class Count> int64_t offset_of(int block, Count count) {
    int64_t before = 0;
    for (int q = 0; q < block; ++q) before += count(q);
    return before;
}
/// The block that element i is in; i becomes its place there.
template <class Count> int block_of(int64_t* i, Count count) {
    int block = 0;
    while (*i >= count(block)) *i -= count(block++);
    return block;
}

/// What element i of rank r's output must be.
int64_t expected(const Setting& s, int r, int64_t i) {
    auto sum = [&](int64_t at) {
        int64_t total = 0;
        for (int q = 0; q < s.ranks; ++q) total += value(q, at);
        return total;
    };
    auto whole = [&](int q) { return block_count(s, q); };
    switch (s.kind) {
    case Collective::all_reduce:
    case Collective::reduce: return sum(i);
    case Collective::reduce_scatter: return sum(offset_of(r, whole) + i);
    case Collective::all_gather: {
        int q = block_of(&i, whole);
        return value(q, i);
    }
    case Collective::all_to_all: {
        int q = block_of(&i, [&](int from) { return pair_count(s, from, r); });
        return value(q, offset_of(r, [&](int to) { return pair_count(s, q, to); }) + i);
    }
    case Collective::broadcast: return value(s.root, i);
    case Collective::gather: return value(int(i / s.count), i % s.count);
    case Collective::scatter: return value(s.root, r * s.count + i);
    case Collective::barrier: return 0;
    }
    return 0;
}

/// One rank: its memory, its call, its program, and how far it is.
struct SimRank {
    Call call;
    Shape shape;
    Values in, out, scratch;
    std::vector<int64_t> in_counts, out_counts;
    Program program;
    std::vector<int> before;
    std::vector<int> ready;   // may be started
    std::vector<int> sending; // started, and not read yet
    int left = 0;
};

class Simulation {
  public:
    Simulation(const WireAlgorithm& row, const Setting& s, uint64_t seed)
        : row_(row), s_(s), random_(seed), ranks_(static_cast<size_t>(s.ranks)) {
        for (int r = 0; r < s.ranks; ++r) prepare(r);
    }

    bool applies() const {
        return std::all_of(ranks_.begin(), ranks_.end(), [&](const SimRank& r) { return row_.applies(r.shape); });
    }

    /// What went wrong, or "".
    std::string run() {
        for (SimRank& rank : ranks_) build(rank);
        for (int r = 0; r < s_.ranks; ++r)
            for (int q = 0; q < s_.ranks; ++q)
                if (ranks_[size_t(r)].program.n_sends(q) != ranks_[size_t(q)].program.n_receives(r))
                    return "rank " + std::to_string(r) + " sends to rank " + std::to_string(q) +
                           " another number of times than that receives";
        while (wrong_.empty() && step()) {
        }
        for (SimRank& rank : ranks_)
            if (wrong_.empty() && rank.left != 0)
                return "stuck with " + std::to_string(rank.left) + " actions";
        return check();
    }

  private:
    struct Move {
        int rank, number;
        bool reads; // the bytes of a send that was started
    };

    void prepare(int r) {
        SimRank& rank = ranks_[size_t(r)];
        const int n = s_.ranks;
        int64_t in_elements = s_.count, out_elements = s_.count;
        auto blocks = [&](std::vector<int64_t>* counts, auto count) {
            for (int q = 0; q < n; ++q) counts->push_back(count(q));
            return offset_of(n, count);
        };
        auto whole = [&](int q) { return block_count(s_, q); };
        switch (s_.kind) {
        case Collective::reduce_scatter:
            in_elements = blocks(&rank.in_counts, whole);
            out_elements = whole(r);
            break;
        case Collective::all_gather:
            in_elements = whole(r);
            out_elements = blocks(&rank.out_counts, whole);
            break;
        case Collective::all_to_all:
            in_elements = blocks(&rank.in_counts, [&](int to) { return pair_count(s_, r, to); });
            out_elements = blocks(&rank.out_counts, [&](int from) { return pair_count(s_, from, r); });
            break;
        case Collective::gather: out_elements = s_.count * n; break;
        case Collective::scatter: in_elements = s_.count * n; break;
        case Collective::barrier: in_elements = out_elements = 0; break;
        default: break;
        }
        if (s_.kind == Collective::all_to_all && !s_.uneven) { // as a call without splits has it
            rank.in_counts.clear();
            rank.out_counts.clear();
        }
        rank.in.resize(size_t(std::max(in_elements, out_elements)));
        for (size_t i = 0; i < rank.in.size(); ++i) rank.in[i] = value(r, int64_t(i));
        rank.out.assign(size_t(out_elements), -1);
        auto counts = [](std::vector<int64_t>& list) { return list.empty() ? nullptr : list.data(); };
        rank.call.kind = s_.kind;
        rank.call.dtype = DType::i64;
        rank.call.root = s_.root;
        rank.call.in = Blocks{rank.in.data(), nullptr, counts(rank.in_counts),
                              s_.kind == Collective::all_gather ? whole(r) : s_.count};
        rank.call.out = Blocks{s_.in_place ? rank.in.data() : rank.out.data(), nullptr, counts(rank.out_counts),
                               s_.kind == Collective::reduce_scatter ? whole(r) : s_.count};
        rank.shape.call = &rank.call;
        rank.shape.rank = r;
        rank.shape.world_size = n;
        rank.shape.element_bytes = sizeof(int64_t);
        rank.shape.count = s_.kind == Collective::barrier ? 0 : s_.count;
        rank.shape.piece_bytes = kPieceBytes;
    }

    void build(SimRank& rank) {
        rank.program = Program(s_.ranks);
        row_.build(rank.shape, rank.program);
        rank.program.finish();
        rank.scratch.assign(size_t(rank.program.scratch_bytes() / int64_t(sizeof(int64_t)) + 1), -7);
        rank.left = rank.program.size();
        for (int i = 0; i < rank.program.size(); ++i) {
            rank.before.push_back(rank.program.action(i).n_before);
            if (rank.before.back() == 0)
                rank.ready.push_back(i);
        }
    }

    int64_t* at(SimRank& rank, const Place& p) {
        int64_t offset = p.offset_bytes / int64_t(sizeof(int64_t));
        if (p.buffer == Buffer::scratch)
            return rank.scratch.data() + offset;
        const Blocks& blocks = p.buffer == Buffer::input ? rank.call.in : rank.call.out;
        offset += offset_of(p.block, [&](int q) { return blocks.count_of(q); });
        return static_cast<int64_t*>(blocks.base) + offset;
    }

    void end(SimRank& rank, const Action& action) {
        --rank.left;
        for (int i = 0; i < action.n_after; ++i) {
            int next = rank.program.successors(action)[i];
            if (--rank.before[size_t(next)] == 0)
                rank.ready.push_back(next);
        }
    }

    /// One thing that may happen next, by chance; false: nothing may.
    bool step() {
        std::vector<Move> moves;
        for (int r = 0; r < s_.ranks; ++r) {
            SimRank& rank = ranks_[size_t(r)];
            for (int number : rank.sending) moves.push_back({r, number, true});
            for (int number : rank.ready) {
                const Action& a = rank.program.action(number);
                if (a.kind != ActionKind::receive || wire_.count({int(a.peer), r, a.slot}) != 0)
                    moves.push_back({r, number, false});
            }
        }
        if (moves.empty())
            return false;
        make(moves[random_() % moves.size()]);
        return true;
    }

    void make(const Move& move) {
        SimRank& rank = ranks_[size_t(move.rank)];
        const Action& a = rank.program.action(move.number);
        const Place* places = rank.program.places(a);
        auto& list = move.reads ? rank.sending : rank.ready;
        list.erase(std::find(list.begin(), list.end(), move.number));
        switch (a.kind) {
        case ActionKind::send:
            if (!move.reads)
                return rank.sending.push_back(move.number);
            wire_[{move.rank, int(a.peer), a.slot}] = Values(at(rank, places[0]), at(rank, places[0]) + a.count);
            break;
        case ActionKind::receive: {
            auto it = wire_.find({int(a.peer), move.rank, a.slot});
            if (int64_t(it->second.size()) != a.count)
                wrong_ = "a message of " + std::to_string(it->second.size()) + " for a receive of " +
                         std::to_string(a.count);
            else
                std::copy(it->second.begin(), it->second.end(), at(rank, places[0]));
            wire_.erase(it);
            break;
        }
        case ActionKind::copy:
            if (a.count > 0)
                std::memmove(at(rank, places[0]), at(rank, places[1]), size_t(a.count) * sizeof(int64_t));
            break;
        case ActionKind::reduce: reduce(rank, a, places); break;
        }
        end(rank, a);
    }

    void reduce(SimRank& rank, const Action& a, const Place* places) {
        Values sum(static_cast<size_t>(a.count), 0);
        for (int j = 0; j < a.n_srcs; ++j)
            for (int64_t i = 0; i < a.count; ++i) sum[size_t(i)] += at(rank, places[a.n_dsts + j])[i];
        for (int j = 0; j < a.n_dsts; ++j) std::copy(sum.begin(), sum.end(), at(rank, places[j]));
    }

    std::string check() {
        if (!wrong_.empty())
            return wrong_;
        if (!wire_.empty())
            return "messages are left over";
        const bool rooted = s_.kind == Collective::reduce || s_.kind == Collective::gather;
        for (int r = 0; r < s_.ranks; ++r) {
            SimRank& rank = ranks_[size_t(r)];
            const auto* out = static_cast<const int64_t*>(rank.call.out.base);
            for (size_t i = 0; i < rank.out.size() && (!rooted || r == s_.root); ++i)
                if (out[i] != expected(s_, r, int64_t(i)))
                    return "rank " + std::to_string(r) + ", element " + std::to_string(i) + " is " +
                           std::to_string(out[i]) + ", not " + std::to_string(expected(s_, r, int64_t(i)));
        }
        return "";
    }

    const WireAlgorithm& row_;
    const Setting s_;
    std::mt19937_64 random_;
    std::vector<SimRank> ranks_;
    std::map<std::tuple<int, int, uint32_t>, Values> wire_;
    std::string wrong_;
};

bool may_be_in_place(Collective kind) {
    return kind == Collective::all_reduce || kind == Collective::reduce || kind == Collective::broadcast ||
           kind == Collective::all_to_all;
}
bool may_be_uneven(Collective kind) {
    return kind == Collective::reduce_scatter || kind == Collective::all_gather || kind == Collective::all_to_all;
}

/// All settings of a row and world size; returns how many there were.
int run_all(const WireAlgorithm& row, int ranks) {
    int ran = 0;
    for (int64_t count : {0, 1, 7, 61, 200})
        for (int variant = 0; variant < 3; ++variant)
            for (uint64_t seed = 0; seed < 6; ++seed) {
                Setting s{row.kind, ranks, count, variant == 1, variant == 2, int(count) % ranks};
                if ((s.in_place && !may_be_in_place(row.kind)) || (s.uneven && !may_be_uneven(row.kind)))
                    continue;
                Simulation simulation(row, s, seed * 1009 + uint64_t(count));
                if (!simulation.applies())
                    continue;
                ++ran;
                std::string wrong = simulation.run();
                REQUIRE_MESSAGE(wrong.empty(), row.name, ", ", ranks, " ranks, count ", count, ", variant ", variant,
                                ", seed ", seed, ": ", wrong);
            }
    return ran;
}

} // namespace

TEST_CASE("programs: whatever order they allow, the result is the reference's") {
    for (int i = 0; i < kWireAlgorithmCount; ++i) {
        CAPTURE(kWireAlgorithms[i]->name);
        int ran = 0;
        for (int ranks : {2, 3, 4, 5, 8}) ran += run_all(*kWireAlgorithms[i], ranks);
        CHECK(ran >= 24); // some rows are for more than two ranks, or for small vectors
    }
}
