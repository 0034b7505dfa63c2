// The turns and the choice. See ways.h.
#include "engine/ways.h"

#include <bit>

namespace collectives {
namespace {
constexpr float kMustWinBy = 0.95f; // over the ways before it: noise does not decide
}

Turn WayChooser::next_turn(Collective kind, int cls, WaySet allowed) {
    Cell& c = cell(kind, cls);
    const int64_t tries = int64_t(std::popcount(allowed)) * kTries;
    int64_t call = c.calls++;
    if (call >= kFirstPeriod)
        call = (call - kFirstPeriod) % kPeriod;
    if (call == tries)
        return {Turn::decide, Way::staged};
    if (call > tries)
        return {};
    if (call == 0)
        for (float& ns : c.ns) ns = 0;
    int64_t index =
        call % std::popcount(allowed); // of the way among the allowed: in turn, for the first calls are cold
    for (int way = 0; way < kWayCount; ++way)
        if ((allowed & way_bit(Way(way))) != 0 && index-- == 0)
            return {Turn::try_one, Way(way)};
    return {};
}

void WayChooser::record(Collective kind, int cls, Way way, int64_t ns) {
    float& fastest = cell(kind, cls).ns[int(way)];
    if (fastest == 0 || float(ns) < fastest)
        fastest = float(ns);
}

Way WayChooser::best(Collective kind, int cls, WaySet allowed) const {
    const Cell& c = cells_[int(kind)][cls];
    Way best = Way::staged;
    float limit = 0; // none yet
    for (int way = 0; way < kWayCount; ++way) {
        if ((allowed & way_bit(Way(way))) == 0 || c.ns[way] == 0 || (limit != 0 && c.ns[way] >= limit))
            continue;
        best = Way(way);
        limit = c.ns[way] * kMustWinBy;
    }
    return best;
}

} // namespace collectives
