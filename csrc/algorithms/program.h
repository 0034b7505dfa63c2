// Program: what one rank does in a collective between hosts, as a data flow: sends, receives, reductions and copies between
// symbolic places, each with the actions that must be over before it. No I/O, no time, no pointers to data: the engine runs
// it over links, and a simulator can run it with a clock of its own. docs/adr/0007 has the reasons.
//
// The n-th send of a program to rank q meets the n-th receive from this rank in q's program. Both leave out what is empty in
// the same cases, or neither does.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "algorithms/algorithm.h"

namespace collectives {

enum class Buffer : uint8_t { input, output, scratch };

struct Place {
    Buffer buffer = Buffer::input;
    int16_t block = 0; // of input or output
    int64_t offset_bytes = 0;
};
inline Place in_at(int64_t offset_bytes = 0, int block = 0) { return {Buffer::input, int16_t(block), offset_bytes}; }
inline Place out_at(int64_t offset_bytes = 0, int block = 0) { return {Buffer::output, int16_t(block), offset_bytes}; }
inline Place scratch_at(int64_t offset_bytes) { return {Buffer::scratch, 0, offset_bytes}; }

enum class ActionKind : uint8_t { send, receive, reduce, copy };

struct Action {
    ActionKind kind;
    bool finishes;  // reduce: the result is final (avg divides it)
    int16_t peer;   // send, receive
    int16_t n_dsts; // reduce, copy
    int16_t n_srcs;
    int32_t first_place;          // dsts, then srcs, in places(); of send and receive the one place
    int64_t count;                // elements
    int64_t whole;                // send, receive: of the block that this is a piece of
    uint32_t slot;                // send, receive: its number among those with this peer
    int32_t n_before;             // actions that it waits for
    int32_t first_after, n_after; // in successors(): those that wait for it
};

class Program {
  public:
    explicit Program(int world_size = 1) : sends_(size_t(world_size)), receives_(size_t(world_size)) {}

    void clear();
    // Each returns the action's number, for the `after` of later ones. -1 in `after` is left out.
    // `whole`: elements of the block that is sent in pieces; -1: this is all of it.
    int send(int peer, Place from, int64_t count, std::initializer_list<int> after = {}, int64_t whole = -1);
    int send(int peer, Place from, int64_t count, std::span<const int> after, int64_t whole);
    int receive(int peer, Place to, int64_t count, std::initializer_list<int> after = {}, int64_t whole = -1);
    int copy(Place to, Place from, int64_t count, std::initializer_list<int> after = {});
    int reduce(std::span<const Place> dsts, std::span<const Place> srcs, int64_t count, std::span<const int> after,
               bool finishes = true);
    /// Bytes of scratch, and a place in them, whole cache lines.
    int64_t take_scratch(int64_t bytes);
    /// After the last action: links the actions up.
    void finish();

    int size() const { return int(actions_.size()); }
    const Action& action(int i) const { return actions_[size_t(i)]; }
    const Place* places(const Action& a) const { return &places_[size_t(a.first_place)]; }
    const int32_t* successors(const Action& a) const { return &successors_[size_t(a.first_after)]; }
    /// The receive that the frame with this slot of `peer` belongs to; -1: there is none.
    int receive_at(int peer, uint32_t slot) const {
        auto& all = receives_[size_t(peer)];
        return slot < all.size() ? all[slot] : -1;
    }
    int n_receives(int peer) const { return int(receives_[size_t(peer)].size()); }
    int n_sends(int peer) const { return sends_[size_t(peer)]; }
    int64_t scratch_bytes() const { return scratch_bytes_; }

  private:
    int add(ActionKind kind, int peer, int64_t count, std::span<const int> after);
    void place(Place p) { places_.push_back(p); }

    std::vector<Action> actions_;
    std::vector<Place> places_;
    std::vector<std::pair<int32_t, int32_t>> edges_; // (before, after)
    std::vector<int32_t> successors_;
    std::vector<int> sends_;
    std::vector<std::vector<int>> receives_;
    int64_t scratch_bytes_ = 0;
};

/// One row of the table of algorithms between hosts.
struct WireAlgorithm {
    const char* name;
    Collective kind;
    bool rank_order;  // sums in the order of the ranks, as every algorithm within a host: the same bits
    const char* cost; // rounds and bytes a rank sends, for people
    bool (*applies)(const Shape&);
    void (*build)(const Shape&, Program& out);
    /// Wants to know the blocks of all ranks, of a collective whose ranks otherwise know their own: the engine checks that
    /// all run it, or none.
    bool even_only = false;
};

extern const WireAlgorithm* const kWireAlgorithms[];
extern const int kWireAlgorithmCount;
/// The row with this name, or null.
const WireAlgorithm* find_wire_algorithm(const char* name);

} // namespace collectives
