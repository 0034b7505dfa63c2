// simulate(): one seeded run of a whole group of ranks, as threads over the transport `faulty`, with everything checked
// that must be true whatever goes wrong. docs/faults.md has the list. For the simulation only.
#pragma once

#include <cstdint>
#include <string>

namespace collectives::sim {

/// What the runs so far have looked at.
struct Tally {
    int64_t results = 0; // operations that ended well and were compared
    int64_t errors = 0;  // operations that ended in an error which may be
    int64_t deaths = 0, silent_deaths = 0, shrinks = 0;
};

struct Settings {
    int64_t scale = 1;                                     // patience: multiplies every deadline
    std::string replay = "collectives_simulation --seed "; // what is printed before the seed when ranks hang
};

/// What went wrong first, or "". Ends the process when ranks hang, after saying where each is.
std::string simulate(uint64_t seed, const Settings& settings, Tally* tally);

/// How patient this build must be: sanitizers are slow.
int64_t default_scale();

} // namespace collectives::sim
