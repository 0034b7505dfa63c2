// Row 10, the lanes: added in 32 bits, modulo 2^32, whatever their width in the packet. Twin of p4/controls/aggregate.p4.
//
// 64 workers of 16 bits need 22: narrow sums are exact until the reply, where a lane that does not fit is set to the nearest
// number that does. Limiting earlier would make a sum depend on the order of the packets.
#include <cstring>

#include "switch/visit.h"

namespace collectives::aggregation {
namespace {

/// A lane as it lies in a packet, widened. Lanes begin at a multiple of 8 in the datagram, but a datagram may begin anywhere.
template <class T> uint32_t lane_at(const uint8_t* lanes, int i) {
    return uint32_t(int32_t(wire::packet_detail::load<T>(lanes + sizeof(T) * size_t(i))));
}

template <class T> void add(int32_t* __restrict__ sums, const uint8_t* __restrict__ lanes, int n, bool begins) {
    if (begins)
        for (int i = 0; i < n; ++i) sums[i] = int32_t(lane_at<T>(lanes, i)); // no step clears a cell, so none is missed
    else
        for (int i = 0; i < n; ++i) sums[i] = int32_t(uint32_t(sums[i]) + lane_at<T>(lanes, i));
}

} // namespace

void aggregate(Visit& visit) {
    const int n = visit.header.lanes;
    switch (visit.header.lane_bits) {
    case 8: return add<int8_t>(visit.sums, visit.lanes, n, visit.begins);
    case 16: return add<int16_t>(visit.sums, visit.lanes, n, visit.begins);
    default: return add<int32_t>(visit.sums, visit.lanes, n, visit.begins);
    }
}

} // namespace collectives::aggregation
