// Frame: what travels on a TCP connection between two processes, once each has proved that it belongs to the job. Fixed
// layout, little-endian, and nothing in it is trusted: check_frame comes before anything else is done with a header.
// May be included by transport and engine; includes base only.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace collectives::wire {

static_assert(std::endian::native == std::endian::little, "frames are written as they lie in memory");

constexpr uint32_t kFrameMagic = 0x4c4c4f43; // "COLL"
constexpr uint16_t kFrameVersion = 1;
constexpr uint64_t kMaxFrameBytes = uint64_t(1) << 40;
constexpr uint64_t kMaxNoticeBytes = 4096;

enum class FrameKind : uint8_t {
    none,
    data,    // of a collective: payload for the receive number `slot` of operation `sequence`
    begun,   // the sender has begun operation `sequence`: its receives may be filled
    message, // a record of a message ring: `slot` bytes of header, then its payload
    failed,  // the sender's group has failed: payload is the text, `what` the Code, `count` the culprit
    closed,  // the sender has closed the group
    leaving, // the sender's process ends in good order
};
constexpr uint8_t kFrameKinds = 8;

struct FrameHeader {
    uint32_t magic = kFrameMagic;
    uint16_t version = kFrameVersion;
    FrameKind kind = FrameKind::none;
    uint8_t reserved = 0;
    uint64_t group = 0;       // the group's number, the same on all its ranks
    uint64_t sequence = 0;    // of the operation
    uint64_t fingerprint = 0; // of all calls of the group up to this one
    uint64_t what = 0;        // what was called: collective, dtype, reduce operation, root (engine/wire_operation.cc)
    int64_t count = 0;        // elements of its largest block
    uint32_t slot = 0;
    uint32_t source = 0; // the sender's rank in the group
    uint64_t length = 0; // bytes of payload
};
static_assert(sizeof(FrameHeader) == 64);
static_assert(offsetof(FrameHeader, kind) == 6 && offsetof(FrameHeader, group) == 8);
static_assert(offsetof(FrameHeader, sequence) == 16 && offsetof(FrameHeader, fingerprint) == 24);
static_assert(offsetof(FrameHeader, what) == 32 && offsetof(FrameHeader, count) == 40);
static_assert(offsetof(FrameHeader, slot) == 48 && offsetof(FrameHeader, source) == 52);
static_assert(offsetof(FrameHeader, length) == 56);

/// Null when the header can be one of this version; else what is wrong with it.
inline const char* check_frame(const FrameHeader& h) {
    if (h.magic != kFrameMagic)
        return "bytes that are no frame";
    if (h.version != kFrameVersion)
        return "a frame of another version";
    if (h.kind == FrameKind::none || uint8_t(h.kind) >= kFrameKinds || h.reserved != 0)
        return "a frame of an unknown kind";
    bool small = h.kind != FrameKind::data;
    if (h.length > (small ? kMaxNoticeBytes + (1 << 20) : kMaxFrameBytes))
        return "a frame that is too long";
    if ((h.kind == FrameKind::begun || h.kind == FrameKind::closed || h.kind == FrameKind::leaving) && h.length != 0)
        return "a notice with a payload that it cannot have";
    return nullptr;
}

} // namespace collectives::wire
