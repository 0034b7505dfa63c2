// Script: what the ranks of one simulation do and what goes wrong, a pure function of the seed. All ranks take the actions
// in the same order; the members of an action's group take part in it. For the simulation only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/call.h"
#include "transport/faults.h"

namespace collectives::sim {

enum class Act : uint8_t {
    collective,
    coalesced,  // several all_reduces at once
    message,    // one, from a rank to a rank (perhaps the same)
    burst,      // many from one rank to another, over three tags: ordered per tag
    gather_any, // one from everybody to a rank that receives from any source
    wait,       // for everything that was started
    split,
    close,
    abort, // one rank gives the group up; the others find out
};

struct Action {
    Act act = Act::wait;
    int group = 0; // index in Script::groups
    uint64_t salt = 0;
    bool async = false;
    int parts = 1; // calls of `coalesced`, messages of `burst`
    // collectives
    Collective kind = Collective::barrier;
    DType dtype = DType::i32;
    ReduceOp op = ReduceOp::sum;
    int64_t count = 0;
    int root = 0;
    bool uneven = false, in_place = false, mapped = false;
    // messages, abort: ranks in the group
    int from = 0, to = 0;
    bool any_source = false;
    uint32_t tag = 0;
    int64_t bytes = 0;
    // split: by rank in the group; colour c makes group first_new + c
    std::vector<int> colors, keys;
    int first_new = 0;
};

struct Script {
    uint64_t seed = 0;
    int world_size = 0;
    std::vector<std::vector<int>> groups; // of each group, the world's ranks in its order; 0 is the world
    std::vector<Action> actions;
    std::vector<bool> aborted; // by group: some action aborts it
    FaultPlan faults;          // of everybody, without death
    int victim = -1;           // who dies
    int64_t drop_after = -1;
    bool silent = false;
    int64_t staging_bytes = 0, piece_bytes = 0, mapped_from_bytes = 0, pull_from_bytes = 0, spin_ns = 0;
};

Script make_script(uint64_t seed);
std::string text_of(const Action& action);
std::string text_of(const Script& script);

} // namespace collectives::sim
