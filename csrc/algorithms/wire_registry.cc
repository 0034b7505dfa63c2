// The table of algorithms between hosts. The planner takes the one that it predicts to be the fastest
// (engine/wire_planner.h), or the first that applies. Adding one: a file beside this one, its declaration in wire_rows.h, its
// row here; the contract suite and the tests of the planner iterate the table.
#include <cstring>

#include "algorithms/wire_rows.h"

namespace collectives {

const WireAlgorithm* const kWireAlgorithms[] = {
    &kAllReduceExchange,   &kAllReduceDirect,        &kAllReduceDoubling,
    &kAllReduceHalving,    &kAllReduceRing,                           // all_reduce
    &kReduceExchange,      &kReduceDirect,           &kReduceTree,    // reduce
    &kReduceScatterDirect, &kAllGatherDirect,        &kAllGatherRing, // reduce_scatter, all_gather
    &kAllToAllPairwise,    &kAllToAllBruck,                           // all_to_all
    &kBroadcastDirect,     &kBroadcastScatterGather, &kBroadcastTree, // broadcast
    &kGatherDirect,        &kScatterDirect,                           // the rest
    &kBarrierDirect,
};
const int kWireAlgorithmCount = int(sizeof kWireAlgorithms / sizeof kWireAlgorithms[0]);

const WireAlgorithm* find_wire_algorithm(const char* name) {
    for (const WireAlgorithm* row : kWireAlgorithms)
        if (std::strcmp(row->name, name) == 0)
            return row;
    return nullptr;
}

} // namespace collectives
