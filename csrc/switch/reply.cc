// What a reply says: the slot's own numbers, and nothing of the packet that caused it. Twin of p4/controls/reply.p4.
#include <algorithm>
#include <limits>

#include "switch/visit.h"

namespace collectives::aggregation {
namespace {

/// The lanes, limited to their width; true: one had to be.
template <class T> bool put(const int32_t* __restrict__ sums, uint8_t* __restrict__ out, int n) {
    constexpr int32_t kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
    int limited = 0;
    for (int i = 0; i < n; ++i) {
        const int32_t lane = std::clamp(sums[i], kLeast, kMost);
        limited |= lane != sums[i];
        wire::packet_detail::store<T>(out + sizeof(T) * size_t(i), T(lane));
    }
    return limited != 0;
}

/// As many bytes as came; nothing of them but what tells the probe from others.
size_t reply_to_probe(const Visit& visit, uint8_t* out) {
    wire::PacketHeader header;
    header.magic = wire::kPacketMagic;
    header.version = wire::kPacketVersion;
    header.kind = uint8_t(wire::PacketKind::probed);
    header.lanes = visit.header.lanes;
    header.job = visit.job->number;
    header.incarnation = visit.job->incarnation;
    header.chunk_id = visit.header.chunk_id;
    header.exponent = header.next_exponent = wire::kLowestExponent;
    header.worker = wire::kFromSwitch;
    header.lane_bits = visit.header.lane_bits;
    wire::encode_packet(header, out);
    std::memset(out + wire::kPacketHeaderBytes, 0, header.payload_bytes());
    return wire::kPacketHeaderBytes + header.payload_bytes();
}

} // namespace

size_t reply(const Visit& visit, uint8_t* out) {
    if (visit.verdict == Verdict::probed)
        return reply_to_probe(visit, out);
    const Cell& cell = *visit.cell;
    uint8_t* lanes = out + wire::kPacketHeaderBytes;
    const bool limited = cell.lane_bits == 8    ? put<int8_t>(visit.sums, lanes, cell.lanes)
                         : cell.lane_bits == 16 ? put<int16_t>(visit.sums, lanes, cell.lanes)
                                                : put<int32_t>(visit.sums, lanes, cell.lanes);
    wire::PacketHeader header;
    header.magic = wire::kPacketMagic;
    header.version = wire::kPacketVersion;
    header.kind = uint8_t(visit.verdict == Verdict::mismatch ? wire::PacketKind::mismatch : wire::PacketKind::result);
    header.flags = uint16_t(cell.flags | (limited ? wire::kFlagOverflow : 0) |
                            (visit.verdict == Verdict::replayed ? wire::kFlagRetransmission : 0));
    header.lanes = cell.lanes;
    header.job = visit.job->number;
    header.incarnation = visit.job->incarnation;
    header.slot = uint32_t(visit.slot - visit.job->slots.data());
    header.epoch = cell.epoch;
    header.chunk_id = cell.chunk_id;
    header.mask = cell.mask;
    header.exponent = cell.exponent;
    header.next_exponent = cell.next_exponent;
    header.worker = wire::kFromSwitch;
    header.lane_bits = cell.lane_bits;
    header.count = cell.count;
    wire::encode_packet(header, out);
    return wire::kPacketHeaderBytes + header.payload_bytes();
}

} // namespace collectives::aggregation
