// A model check of the slot protocol: the switch's own controls and a minimal worker (sends e + 1 when it has the result of
// e; repeats unchanged), over a network that delivers in any order, twice, or not at all, with up to three packets under
// way (more are lost, as in a full queue). Breadth first, up to a number of states: no result is wrong, and from every 16th
// state everybody ends once the network has become reliable.
#include <algorithm>
#include <deque>
#include <string>
#include <unordered_set>
#include <vector>

#include <doctest/doctest.h>

#include "switch/pipeline.h"

using namespace collectives;
using namespace collectives::aggregation;

namespace {

constexpr int kWorkers = 2, kSlots = 2;
constexpr uint32_t kEpochs = 3;   // the third takes the cell of the first
constexpr size_t kMostFlying = 3; // packets under way; more are lost, as in a full queue

int32_t value(int w, int slot, uint32_t epoch) { return (w + 1) + 16 * slot + 256 * int32_t(epoch); }
int32_t sum(int slot, uint32_t epoch) { return value(0, slot, epoch) + value(1, slot, epoch); }

struct Packet {
    uint8_t to; // a worker, or kWorkers: the switch
    uint8_t from;
    uint8_t slot, epoch;
    auto operator<=>(const Packet&) const = default;
};

struct State {
    Job job;
    uint8_t awaited[kWorkers][kSlots];
    std::vector<Packet> flying; // sorted

    std::string key() const {
        std::string text(reinterpret_cast<const char*>(awaited), sizeof awaited);
        for (const Packet& p : flying) text.append({char(p.to), char(p.from), char(p.slot), char(p.epoch)});
        text.push_back('|');
        for (int s = 0; s < kSlots; ++s)
            for (uint32_t c = 0; c < 2; ++c) {
                const Cell& cell = job.slots[size_t(s)].cells[c];
                text.append({char(cell.epoch), char(cell.mask), char(cell.count)});
                const int32_t lane = const_cast<Job&>(job).sums_of(uint32_t(s), c)[0];
                text.append(reinterpret_cast<const char*>(&lane), sizeof lane);
            }
        return text;
    }
    void fly(Packet p) {
        if (flying.size() < kMostFlying)
            flying.insert(std::upper_bound(flying.begin(), flying.end(), p), p);
    }
    void send(int w, int slot) {
        if (awaited[w][slot] <= kEpochs)
            fly({kWorkers, uint8_t(w), uint8_t(slot), awaited[w][slot]});
    }
    bool over() const {
        for (auto& worker : awaited)
            for (uint8_t epoch : worker)
                if (epoch <= kEpochs)
                    return false;
        return true;
    }
};

State start() {
    State state;
    state.job.number = 1;
    state.job.incarnation = 1;
    state.job.most_lanes = 1;
    for (int w = 0; w < kWorkers; ++w) state.job.workers.push_back({.at = ipv4_port(10, 0, 0, uint8_t(w), 1)});
    state.job.slots.resize(kSlots);
    state.job.sums.resize(2 * kSlots);
    for (auto& worker : state.awaited)
        for (uint8_t& epoch : worker) epoch = 1;
    return state;
}

/// What the switch does with an update; its reply flies. `breaks`: a switch that goes by the last bit of the epoch alone.
bool arrive_at_switch(State& state, Packet p, bool breaks) {
    uint8_t datagram[wire::kPacketHeaderBytes + 4];
    wire::PacketHeader h;
    h.magic = wire::kPacketMagic;
    h.version = wire::kPacketVersion;
    h.kind = uint8_t(wire::PacketKind::update);
    h.lanes = 1;
    h.lane_bits = 32;
    h.job = h.incarnation = 1;
    h.slot = p.slot;
    h.epoch = p.epoch;
    h.chunk_id = breaks ? 1 : p.epoch;
    wire::encode_packet(h, datagram);
    wire::packet_detail::store<int32_t>(datagram + wire::kPacketHeaderBytes, value(p.from, p.slot, p.epoch));
    if (breaks) { // any epoch of its parity goes into the cell that is under way, or begins a new one
        Slot& slot = state.job.slots[p.slot];
        Cell& cell = slot.cells[p.epoch & 1];
        if (cell.count == 0 || (cell.count == kWorkers && cell.epoch != p.epoch)) {
            cell = Cell{};
            slot.current = p.epoch - 1u;
        } else {
            cell.epoch = p.epoch;
        }
    }
    Visit visit;
    parse(visit, {}, datagram, sizeof datagram);
    visit.job = &state.job;
    visit.worker = p.from;
    serve(visit);
    if (visit.verdict == Verdict::mismatch)
        return false;
    if (visit.verdict != Verdict::completed && visit.verdict != Verdict::replayed)
        return true;
    uint8_t out[sizeof datagram];
    REQUIRE(reply(visit, out) == sizeof out);
    const wire::PacketHeader said = wire::decode_packet(out);
    if (wire::packet_detail::load<int32_t>(out + wire::kPacketHeaderBytes) != sum(p.slot, said.epoch))
        return false; // whoever it is for, it is wrong
    for (int w = 0; w < kWorkers; ++w)
        if (visit.verdict == Verdict::completed || w == p.from)
            state.fly({uint8_t(w), kWorkers, p.slot, uint8_t(said.epoch)});
    return true;
}

bool arrive(State& state, Packet p, bool breaks) {
    if (p.to == kWorkers)
        return arrive_at_switch(state, p, breaks);
    if (state.awaited[p.to][p.slot] == p.epoch) {
        ++state.awaited[p.to][p.slot];
        state.send(p.to, p.slot);
    }
    return true;
}

/// From here on nothing is lost: does everybody end?
bool ends(State state, bool breaks) {
    for (int round = 0; round < 64 && !state.over(); ++round) {
        for (int w = 0; w < kWorkers; ++w)
            for (int s = 0; s < kSlots; ++s) {
                state.flying.clear();
                state.send(w, s);
                while (!state.flying.empty()) {
                    const Packet p = state.flying.front();
                    state.flying.erase(state.flying.begin());
                    if (!arrive(state, p, breaks))
                        return false;
                }
            }
    }
    return state.over();
}

struct Found {
    size_t states = 0;
    int depth = 0;
    bool wrong = false, stuck = false;
};

Found explore(size_t most_states, bool breaks = false) {
    Found found;
    std::unordered_set<std::string> known;
    std::deque<std::pair<State, int>> todo;
    auto visit = [&](State&& state, int depth) {
        if (!known.insert(state.key()).second)
            return;
        found.depth = depth;
        if (++found.states % 16 == 0 && !ends(state, breaks))
            found.stuck = true;
        todo.emplace_back(std::move(state), depth);
    };
    visit(start(), 0);
    while (!todo.empty() && found.states < most_states && !found.wrong) {
        auto [state, depth] = std::move(todo.front());
        todo.pop_front();
        for (int w = 0; w < kWorkers; ++w) // a worker sends, or sends again
            for (int s = 0; s < kSlots; ++s) {
                State next = state;
                next.send(w, s);
                visit(std::move(next), depth + 1);
            }
        for (size_t i = 0; i < state.flying.size(); ++i) {
            const Packet p = state.flying[i];
            State lost = state;
            lost.flying.erase(lost.flying.begin() + long(i));
            State arrived = lost, twice = state;
            visit(std::move(lost), depth + 1);
            found.wrong |= !arrive(arrived, p, breaks) || !arrive(twice, p, breaks); // twice: a copy flies on
            visit(std::move(arrived), depth + 1);
            visit(std::move(twice), depth + 1);
        }
    }
    return found;
}

} // namespace

TEST_CASE("switch model: 2 workers, 2 slots, 3 epochs: no order of losses, copies and delays gives a wrong sum") {
    const Found found = explore(150'000);
    CHECK_FALSE(found.wrong);
    CHECK_FALSE(found.stuck);
    CHECK(found.states >= 150'000);
    MESSAGE(found.states, " states, to a depth of ", found.depth, " steps");
}

TEST_CASE("switch model: it finds the wrong sum of a switch that goes by the last bit of the epoch") {
    const Found found = explore(150'000, true);
    CHECK(found.wrong); // an old packet, delayed until its cell was free again, was added to new ones
    MESSAGE("after ", found.states, " states");
}
