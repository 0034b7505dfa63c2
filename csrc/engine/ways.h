// WayChooser: which way large blocks travel (staged with either store instruction, or pulled), measured on the group's own
// calls. Pure: times are arguments. Private to the engine; operation.cc says how the ranks agree.
//
// Each collective and class of sizes goes through turns: a few calls try every way, rank 0 times them, the next call
// carries its choice to all, and the calls after it use that. After kPeriod calls the turns begin again, because what is
// fastest changes: a virtual machine's cores may move onto one cache, or onto two. What turn it is follows from the number
// of calls alone, which is the same on all ranks.
#pragma once

#include <cstdint>

#include "algorithms/algorithm.h"

namespace collectives {

/// A set of ways, as bits.
using WaySet = unsigned;
constexpr WaySet way_bit(Way way) { return 1u << unsigned(way); }

struct Turn {
    enum Kind { use, try_one, decide } kind = use;
    Way way = Way::staged; // of try_one
};

class WayChooser {
  public:
    static constexpr int kTries = 4;             // of each way: the fastest counts
    static constexpr int64_t kPeriod = 1024;     // calls of one class between two measurements,
    static constexpr int64_t kFirstPeriod = 128; // but the first, cold and perhaps disturbed, is soon repeated

    /// The turn of the next call of this class. `allowed` must not change from call to call.
    Turn next_turn(Collective kind, int cls, WaySet allowed);
    /// What a call took.
    void record(Collective kind, int cls, Way way, int64_t ns);
    /// The fastest of the allowed; staged when nothing is known.
    Way best(Collective kind, int cls, WaySet allowed) const;

  private:
    struct Cell {
        uint32_t calls = 0;
        float ns[kWayCount] = {}; // the fastest of this period; 0: not measured
    };
    Cell& cell(Collective kind, int cls) { return cells_[int(kind)][cls]; }

    Cell cells_[5][kWayClasses]; // all_reduce to broadcast, the first five
};

} // namespace collectives
