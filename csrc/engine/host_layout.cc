// Lanes, and what each carries. See host_layout.h.
#include "engine/host_layout.h"

#include <algorithm>

#include "engine/wire_join.h"

namespace collectives {

HostLayout HostLayout::of(const std::vector<Hello>& hellos) {
    std::vector<size_t> first; // a rank of each host
    std::vector<int> host_of;
    for (size_t q = 0; q < hellos.size(); ++q) {
        size_t h = 0;
        while (h < first.size() && !same_host(hellos[first[h]], hellos[q])) ++h;
        if (h == first.size())
            first.push_back(q);
        host_of.push_back(int(h));
    }
    return of_hosts(host_of);
}

HostLayout HostLayout::of_hosts(const std::vector<int>& host_of) {
    HostLayout layout;
    layout.host_of = host_of;
    for (size_t q = 0; q < host_of.size(); ++q) {
        layout.ranks.resize(std::max(layout.ranks.size(), size_t(host_of[q]) + 1));
        auto& ranks = layout.ranks[size_t(host_of[q])];
        layout.place_of.push_back(int(ranks.size()));
        ranks.push_back(int(q));
    }
    layout.lanes = layout.fewest = layout.size(0);
    for (int h = 1; h < layout.hosts(); ++h) {
        layout.lanes = std::max(layout.lanes, layout.size(h));
        layout.fewest = std::min(layout.fewest, layout.size(h));
    }
    return layout;
}

Share HostLayout::of_vector(int64_t count, int lane, int64_t element_bytes) const {
    if (count * element_bytes >= kCutBytes)
        return share_of(count, lane, lanes, element_bytes);
    const int i = lane * fewest / lanes; // of `fewest` groups of lanes, whose first ones have drivers of their own
    return lane == up(i * lanes, fewest) ? share_of(count, i, fewest, element_bytes) : Share{0, 0};
}

Share HostLayout::of_block(int64_t count, int host, int lane, int64_t element_bytes) const {
    const int place = driver(host, lane), i = lane - first_lane(host, place);
    if (count * element_bytes >= kCutBytes)
        return share_of(count, i, n_lanes(host, place), element_bytes);
    return i == 0 ? Share{0, count} : Share{count, 0};
}

Share HostLayout::sources(int from, int to, int lane) const {
    const int place = driver(to, lane), n = n_lanes(to, place), i = lane - first_lane(to, place);
    const int begin = up(i * size(from), n);
    return {begin, up((i + 1) * size(from), n) - begin};
}

int HostLayout::carried(int host, int place) const {
    int64_t blocks = 0;
    for (int l = first_lane(host, place); l < first_lane(host, place + 1); ++l)
        for (int g = 0; g < hosts(); ++g) blocks += sources(host, g, l).count;
    return int(blocks);
}

} // namespace collectives
