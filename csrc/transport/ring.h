// Ring: a one-way queue of message records between two processes (or threads) in a piece of shared memory. One writer,
// one reader, no lock. The engine's messenger speaks over it; it knows nothing of communicators or matching.
// May be included by the engine; includes base only. docs/messages.md draws the cells.
//
// Why a stamp in each record and no shared "written up to" counter: the reader polls the very line that holds the
// header (and a small payload), so that a small message costs one cache line's way from core to core, not two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace collectives {

/// A ring's memory as this process maps it, zeroed when new. `bytes` is a multiple of 64 from kRingMinBytes to
/// kRingMaxBytes and `base` is 64-byte aligned. The two sides may map it at different addresses.
struct RingMemory {
    void* base = nullptr;
    int64_t bytes = 0;
};

constexpr int64_t kCellBytes = 64;
constexpr int64_t kRingMinBytes = 1024;
constexpr int64_t kRingMaxBytes = int64_t(1) << 30;
constexpr int64_t kInlineBytes = 32; // an eager payload up to this long lies inside the header's cell

/// How payload gets into and out of the ring. It must be ordinary memory order once it returns: a function that uses
/// streaming stores ends with the store fence they need.
using CopyFunction = void (*)(void* to, const void* from, int64_t bytes); // kernels::copy_fn fits

enum class RecordKind : uint8_t {
    none,
    eager,           // a whole message
    request_to_send, // a large message is ready: `message` is the sender's id of it
    clear_to_send,   // its receive is ready: `message` as above, `offset` the receiver's id
    fragment,        // a piece of it: `message` is the receiver's id
    cancel,          // the sender gave up a message that it had announced
    refuse,          // the receiver gave up a message that was announced to it; `total` is its Code
    mismatch,        // the receive had another size: `total` sent, `offset` expected, `message` 0 for an eager one
};

/// The first cell of a record. Written by one process and read by another: fixed layout, nothing in it is trusted.
struct alignas(kCellBytes) RecordHeader {
    uint64_t stamp = 0; // 1 + the record's position since the ring was made, in bytes; 0: not written yet
    uint64_t communicator = 0;
    uint32_t tag = 0;
    uint32_t source = 0; // the writer's rank in the communicator
    uint32_t length = 0; // payload bytes of this record
    RecordKind kind = RecordKind::none;
    uint8_t is_inline = 0; // the payload lies in `small`
    uint16_t reserved = 0;
    union {
        struct {
            uint64_t message;
            uint64_t total;  // bytes of the whole message
            uint64_t offset; // of this payload in the message
            uint64_t unused;
        };
        unsigned char small[kInlineBytes];
    };

    RecordHeader() : message(0), total(0), offset(0), unused(0) {}
};
static_assert(sizeof(RecordHeader) == kCellBytes);
static_assert(offsetof(RecordHeader, communicator) == 8 && offsetof(RecordHeader, tag) == 16);
static_assert(offsetof(RecordHeader, source) == 20 && offsetof(RecordHeader, length) == 24);
static_assert(offsetof(RecordHeader, kind) == 28 && offsetof(RecordHeader, small) == 32);

/// Whether `memory` can be a ring; the message says what is wrong.
Status check_ring_memory(const RingMemory& memory);

/// The writing end. Not thread-safe: its owner lets one thread in at a time.
class RingWriter {
  public:
    RingWriter() = default;
    explicit RingWriter(const RingMemory& memory); // memory that check_ring_memory accepts

    /// Bytes for records: the ring without its two control cells. The longest payload is this less two cells.
    int64_t capacity_bytes() const { return capacity_; }

    /// Writes one record (`header.length` bytes of `payload`) and publishes it; false, with nothing written, when there
    /// is no room for it with `leave_free_bytes` to spare. Sets the header's stamp and is_inline itself.
    bool try_write(const RecordHeader& header, const void* payload, int64_t leave_free_bytes, CopyFunction copy);

    /// After a try_write that failed: asks the reader to say when it has made room (RingReader::publish), and looks
    /// once more. True: there is more room than before, try again; false: it is safe to sleep.
    bool await_room();

    /// The reader's counter held nonsense: this ring can no longer be used.
    bool corrupt() const { return corrupt_; }

  private:
    bool refresh_consumed(uint64_t consumed);
    unsigned char* cell(int64_t offset) const { return data_ + offset; }

    unsigned char* base_ = nullptr;
    unsigned char* data_ = nullptr;
    int64_t capacity_ = 0;
    uint64_t position_ = 0; // bytes written since the ring was made
    int64_t offset_ = 0;    // position_ modulo capacity_
    uint64_t consumed_ = 0; // the reader's position when last looked at
    bool corrupt_ = false;
};

/// The reading end. Not thread-safe either.
class RingReader {
  public:
    enum class Peek { empty, record, corrupt };

    RingReader() = default;
    explicit RingReader(const RingMemory& memory);

    int64_t capacity_bytes() const { return capacity_; }

    /// Looks at the next record. `record`: header() is a checked private copy of its header. `corrupt`: error() says
    /// what was wrong; the ring cannot be read any further.
    Peek peek();
    const RecordHeader& header() const { return header_; }
    const std::string& error() const { return error_; }

    /// Copies the record's payload (header().length bytes) out.
    void read_payload(void* to, CopyFunction copy) const;

    /// Steps over the record; the writer learns of the room at the next publish.
    void pop();

    /// Bytes stepped over and not yet published.
    int64_t unpublished_bytes() const { return int64_t(position_ - published_); }

    /// Gives the room back to the writer. True: the writer waits for room, so its process must be woken.
    bool publish();

  private:
    bool check_header();
    Peek refuse(const std::string& what);

    unsigned char* base_ = nullptr;
    unsigned char* data_ = nullptr;
    int64_t capacity_ = 0;
    uint64_t position_ = 0;
    int64_t offset_ = 0;
    uint64_t published_ = 0;
    RecordHeader header_;
    std::string error_;
};

} // namespace collectives
