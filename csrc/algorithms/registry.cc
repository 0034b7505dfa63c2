// The table of algorithms. The planner takes the first row of a collective that applies, so rows stand from the narrowest
// to the most general. Adding one: a file beside this one, its declaration in rows.h, its row here; the contract suite
// (tests/cpp/engine) iterates the table.
#include <cstring>

#include "algorithms/rows.h"

namespace collectives {

const Algorithm* const kAlgorithms[] = {
    &kAllReduceInline,     &kAllReduceMapped,     &kAllReducePulled,
    &kAllReduceOneShot,
    &kAllReduceTwoShot,                                                  // all_reduce
    &kReduceInline,        &kReduceOneShot,       &kReduceTwoShot,       // reduce
    &kReduceScatterInline, &kReduceScatterMapped, &kReduceScatterStaged, // reduce_scatter
    &kAllGatherInline,     &kAllGatherMapped,     &kAllGatherStaged,     // all_gather
    &kAllToAllStaged,                                                    // all_to_all
    &kBroadcastInline,     &kBroadcastMapped,     &kBroadcastStaged,     // broadcast
    &kGatherStaged,        &kScatterStaged,       &kBarrier,             // the rest
};
const int kAlgorithmCount = int(sizeof kAlgorithms / sizeof kAlgorithms[0]);

const Algorithm* find_algorithm(const char* name) {
    for (const Algorithm* row : kAlgorithms)
        if (std::strcmp(row->name, name) == 0)
            return row;
    return nullptr;
}

const char* collective_name(Collective kind) {
    static const char* const names[kCollectiveCount] = {"all_reduce", "reduce_scatter", "all_gather",
                                                        "all_to_all", "broadcast",      "reduce",
                                                        "gather",     "scatter",        "barrier"};
    return names[int(kind)];
}

} // namespace collectives
