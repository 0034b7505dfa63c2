// Packet: what a worker and an aggregating switch say to each other, one UDP datagram each. docs/protocol.md has the meaning
// of every field; p4/shared/packet.json is the one table of the layout, and a test holds this file to it. Network byte
// order. Nothing in a packet is trusted: check_packet comes before anything else is done with one.
// May be included by innetwork and switch; includes base only.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace collectives::wire {

constexpr uint16_t kPacketPort = 5190;
constexpr uint16_t kPacketMagic = 0xC0CA;
constexpr uint8_t kPacketVersion = 1;
constexpr size_t kPacketHeaderBytes = 56;
constexpr int kMostLanes = 2048;
constexpr int kMostWorkers = 64;
constexpr size_t kMostPacketBytes = kPacketHeaderBytes + size_t(kMostLanes) * 4;
constexpr uint8_t kFromSwitch = 255;           // in the place of a worker
constexpr int16_t kLowestExponent = INT16_MIN; // of a chunk of zeros, or of integers

enum class PacketKind : uint8_t {
    update = 1,
    result = 2,
    mismatch = 3,
    probe = 20,
    probed = 21,
};

enum PacketFlags : uint16_t {
    kFlagRetransmission = 1,
    kFlagOverflow = 2,
    kFlagNotANumber = 4,
    kFlagPlusInfinity = 8,
    kFlagMinusInfinity = 16,
    kFlagCongestion = 32,
};

// (type, name, offset in bytes). Struct, encoding, decoding and table are all made of this list.
#define COLLECTIVES_PACKET_FIELDS(FIELD)                                                                               \
    FIELD(uint16_t, magic, 0)                                                                                          \
    FIELD(uint8_t, version, 2)                                                                                         \
    FIELD(uint8_t, kind, 3)                                                                                            \
    FIELD(uint16_t, flags, 4)                                                                                          \
    FIELD(uint16_t, lanes, 6)                                                                                          \
    FIELD(uint32_t, job, 8)                                                                                            \
    FIELD(uint32_t, incarnation, 12)                                                                                   \
    FIELD(uint32_t, slot, 16)                                                                                          \
    FIELD(uint32_t, epoch, 20)                                                                                         \
    FIELD(uint64_t, chunk_id, 24)                                                                                      \
    FIELD(uint64_t, mask, 32)                                                                                          \
    FIELD(int16_t, exponent, 40)                                                                                       \
    FIELD(int16_t, next_exponent, 42)                                                                                  \
    FIELD(uint8_t, worker, 44)                                                                                         \
    FIELD(uint8_t, lane_bits, 45)                                                                                      \
    FIELD(uint16_t, count, 46)                                                                                         \
    FIELD(uint64_t, auth, 48)

/// The header as numbers of this machine.
struct PacketHeader {
#define FIELD(type, name, offset) type name = 0;
    COLLECTIVES_PACKET_FIELDS(FIELD)
#undef FIELD

    size_t payload_bytes() const { return size_t(lanes) * lane_bits / 8; }
    bool operator==(const PacketHeader&) const = default;
};

struct PacketField {
    const char* name;
    size_t offset, bits;
    bool is_signed;
};
constexpr PacketField kPacketFields[] = {
#define FIELD(type, name, offset) {#name, offset, 8 * sizeof(type), std::is_signed_v<type>},
    COLLECTIVES_PACKET_FIELDS(FIELD)
#undef FIELD
};

namespace packet_detail {

constexpr bool gapless() {
    size_t next = 0;
    for (const PacketField& field : kPacketFields) {
        if (field.offset != next || next % (field.bits / 8) != 0) // aligned, as it lies in a datagram
            return false;
        next += field.bits / 8;
    }
    return next == kPacketHeaderBytes;
}
static_assert(gapless());

template <class T> T swapped(T value) {
    if constexpr (std::endian::native == std::endian::big || sizeof(T) == 1)
        return value;
    else if constexpr (sizeof(T) == 2)
        return T(__builtin_bswap16(uint16_t(value)));
    else if constexpr (sizeof(T) == 4)
        return T(__builtin_bswap32(uint32_t(value)));
    else
        return T(__builtin_bswap64(uint64_t(value)));
}
template <class T> T load(const uint8_t* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return swapped(value);
}
template <class T> void store(uint8_t* to, T value) {
    value = swapped(value);
    std::memcpy(to, &value, sizeof value);
}

} // namespace packet_detail

/// `from` has kPacketHeaderBytes.
inline PacketHeader decode_packet(const uint8_t* from) {
    PacketHeader header;
#define FIELD(type, name, offset) header.name = packet_detail::load<type>(from + (offset));
    COLLECTIVES_PACKET_FIELDS(FIELD)
#undef FIELD
    return header;
}

/// `to` has kPacketHeaderBytes.
inline void encode_packet(const PacketHeader& header, uint8_t* to) {
#define FIELD(type, name, offset) packet_detail::store<type>(to + (offset), header.name);
    COLLECTIVES_PACKET_FIELDS(FIELD)
#undef FIELD
}

inline bool is_lane_width(int bits) { return bits == 8 || bits == 16 || bits == 32; }

/// Null when a datagram of so many bytes can be a packet of this version with lanes; else what is wrong with it.
inline const char* check_packet(const PacketHeader& h, size_t datagram_bytes) {
    if (h.magic != kPacketMagic)
        return "bytes that are no packet";
    if (h.version != kPacketVersion)
        return "a packet of another version";
    if (h.lanes < 1 || h.lanes > kMostLanes || !is_lane_width(h.lane_bits))
        return "a packet with a number or width of lanes that there is not";
    if (datagram_bytes != kPacketHeaderBytes + h.payload_bytes())
        return "a packet that is shorter or longer than its lanes";
    return nullptr;
}

} // namespace collectives::wire
