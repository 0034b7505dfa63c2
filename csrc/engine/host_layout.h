// HostLayout: which ranks of a group are on which host, and which of them carries what between hosts. A pure function of the
// hosts' names, the same on all ranks. Private to the engine; the tests ask it directly.
//
// There are as many lanes as the largest host has ranks. A lane has one rank on every host, which drives it there: on the
// largest hosts each rank drives one, on smaller ones some drive several that follow each other, in turn. So all ranks of all hosts
// work on the link, whatever their numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/algorithm.h"
#include "transport/hello.h"

namespace collectives {

struct HostLayout {
    std::vector<int> host_of;            // of each rank; hosts are numbered in the order of their first ranks
    std::vector<int> place_of;           // of each rank, among those of its host
    std::vector<std::vector<int>> ranks; // of each host, in order
    int lanes = 1;                       // ranks of the host that has the most
    int fewest = 1;                      // and of the one that has the fewest

    static HostLayout of(const std::vector<Hello>& hellos);
    static HostLayout of_hosts(const std::vector<int>& host_of);

    int hosts() const { return int(ranks.size()); }
    int size(int host) const { return int(ranks[size_t(host)].size()); }
    int world_size() const { return int(host_of.size()); }
    /// Whether two levels differ from one: several hosts, and one of them with several ranks.
    bool layered() const { return hosts() > 1 && world_size() > hosts(); }
    /// All hosts have the same number of ranks.
    bool even() const { return lanes == fewest; }

    /// The place that drives a lane on a host; the lanes that a place drives.
    int driver(int host, int lane) const { return lane * size(host) / lanes; }
    int first_lane(int host, int place) const { return up(place * lanes, size(host)); }
    int n_lanes(int host, int place) const { return first_lane(host, place + 1) - first_lane(host, place); }
    int most_lanes_of_a_rank() const { return up(lanes, fewest); }
    int rank_at(int host, int lane) const { return ranks[size_t(host)][size_t(driver(host, lane))]; }

    /// What a lane carries of a vector that all hosts work on. Small ones go on as few lanes as leave nobody with two.
    Share of_vector(int64_t count, int lane, int64_t element_bytes) const;
    /// What a lane carries of the block of the rank that drives it on `host`. Small ones go on that rank's first lane.
    Share of_block(int64_t count, int host, int lane, int64_t element_bytes) const;
    /// Of all_to_all: the places of host `from` whose blocks for the rank that drives `lane` on host `to` go on that lane.
    Share sources(int from, int to, int lane) const;
    /// Of all_to_all: blocks that a place of a host carries, its own included.
    int carried(int host, int place) const;

    static constexpr int64_t kCutBytes = 64 << 10; // less is not cut for several lanes of one rank

  private:
    static int up(int a, int b) { return (a + b - 1) / b; }
};

} // namespace collectives
