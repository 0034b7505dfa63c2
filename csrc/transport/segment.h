// Layout of the shared segment: what a process shows to its peers besides the data. Plain structs at fixed offsets, only
// lock-free atomics, no pointers. Included by transport and engine.
//
//   SegmentHeader | arena: control blocks, staging grants and message rings of all groups, handed out by transport/arena
//
// A rank of a group owns one ControlBlock in its own segment. It alone writes there; its peers read.
#pragma once

#include <atomic>
#include <cstdint>

namespace collectives {

constexpr uint64_t kSegmentMagic = 0x31304c4c4f43ull; // "COLL01"
constexpr uint32_t kWireVersion = 2;
constexpr int kLinePayloadBytes = 48;
constexpr int kFailureTextBytes = 424;
constexpr int kCountsRecorded = 4; // of the first ranks

enum class ProcessState : uint32_t { alive = 1, leaving = 2 };

/// First bytes of a segment.
struct alignas(64) SegmentHeader {
    uint64_t magic;
    uint32_t wire_version;
    uint32_t pid;
    uint64_t segment_bytes;
    uint64_t heap_bytes;
    uint8_t uuid[16];
    uint64_t self;                          // where the owner has mapped this header: lets a peer try process_vm_readv
    std::atomic<uint32_t> state;            // ProcessState
    alignas(64) std::atomic<uint32_t> bell; // counts rings; sleepers wait on it (futex)
    alignas(64) std::atomic<uint32_t> sleepers; // threads that sleep, or are about to: on `bell`,
    std::atomic<uint32_t> pollers;              // or in a poll, where the owner's eventfd wakes them
};

/// "I have written everything of `phase`, and read everything of the phases before it", with the operation's fingerprint
/// and, for small messages, the data itself: one cache line moves it all. Phase n uses line n % 2.
struct alignas(64) PhaseLine {
    std::atomic<uint64_t> phase;
    std::atomic<uint64_t> fingerprint;
    uint8_t payload[kLinePayloadBytes];
};
static_assert(sizeof(PhaseLine) == 64);

/// What this rank called, for the error texts of a mismatch. Relaxed words: read only after something went wrong.
struct alignas(64) CallRecord {
    std::atomic<uint64_t> sequence;
    std::atomic<uint64_t> what;      // kind | dtype << 8 | op << 16 | root << 24
    std::atomic<int64_t> count;      // elements of the largest block
    std::atomic<uint64_t> counts_of; // the sequence number of the call that had these uneven counts:
    std::atomic<int64_t> counts[kCountsRecorded];
};
static_assert(sizeof(CallRecord) == 64);
constexpr int kCallRecords = 4;

/// Written once, by a rank that fails or closes the group; `code` last.
struct FailureRecord {
    std::atomic<uint64_t> owner; // number of the group that the block belongs to now; never repeats
    std::atomic<uint32_t> code;  // a Code; 0: none
    std::atomic<int32_t> culprit;
    char text[kFailureTextBytes];
};

/// A rank's face in one group. Followed by the exchange tables: int64_t[2][table_words].
struct alignas(64) ControlBlock {
    PhaseLine lines[2];
    CallRecord records[kCallRecords];
    FailureRecord failure;

    std::atomic<int64_t>* table(int parity, int64_t table_words) {
        return reinterpret_cast<std::atomic<int64_t>*>(this + 1) + parity * table_words;
    }
};

} // namespace collectives
