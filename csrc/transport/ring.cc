// The ring's two ends. Memory: control cell of the writer, control cell of the reader, then the record cells.
//
// Order: the writer zeroes the stamp of the record after this one, fills in this record, then stores its stamp with
// release; the reader acquires the stamp. Without that zero, an old payload could look like a stamp. The reader gives
// room back through `consumed`; the writer acquires it before it overwrites. `wants_room` and `consumed` are a
// store-then-look on both sides, so both use sequentially consistent operations: one of the two sees the other.
#include "transport/ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/check.h"

namespace collectives {
namespace {

constexpr int64_t kControlBytes = 2 * kCellBytes;
using Word = std::atomic_ref<uint64_t>;

Word word_at(unsigned char* at) { return Word(*reinterpret_cast<uint64_t*>(at)); }
Word wants_room_word(unsigned char* base) { return word_at(base); }
Word consumed_word(unsigned char* base) { return word_at(base + kCellBytes); }

int64_t round_up_to_cells(int64_t bytes) { return (bytes + kCellBytes - 1) / kCellBytes * kCellBytes; }

int64_t record_bytes(const RecordHeader& header) {
    return kCellBytes + (header.is_inline ? 0 : round_up_to_cells(header.length));
}

bool may_be_inline(const RecordHeader& header) {
    return header.kind == RecordKind::eager && int64_t(header.length) <= kInlineBytes;
}

} // namespace

Status check_ring_memory(const RingMemory& memory) {
    const auto address = reinterpret_cast<uintptr_t>(memory.base);
    if (memory.base == nullptr || address % kCellBytes != 0)
        return Status(Code::invalid_argument, "a message ring needs memory that is aligned to 64 bytes");
    if (memory.bytes < kRingMinBytes || memory.bytes > kRingMaxBytes || memory.bytes % kCellBytes != 0)
        return Status(Code::invalid_argument, "a message ring of " + std::to_string(memory.bytes) +
                                                  " bytes: it must be a multiple of 64 from " +
                                                  std::to_string(kRingMinBytes) + " to " +
                                                  std::to_string(kRingMaxBytes));
    return Status();
}

RingWriter::RingWriter(const RingMemory& memory)
    : base_(static_cast<unsigned char*>(memory.base)), data_(base_ + kControlBytes),
      capacity_(memory.bytes - kControlBytes) {
    COLLECTIVES_CHECK(check_ring_memory(memory).ok());
}

bool RingWriter::refresh_consumed(uint64_t consumed) {
    if (consumed < consumed_ || consumed > position_ || consumed % kCellBytes != 0) {
        corrupt_ = true;
        return false;
    }
    consumed_ = consumed;
    return true;
}

bool RingWriter::try_write(const RecordHeader& header, const void* payload, int64_t leave_free_bytes,
                           CopyFunction copy) {
    RecordHeader out = header;
    out.is_inline = may_be_inline(header);
    const int64_t size = record_bytes(out);
    const int64_t needed = size + kCellBytes + leave_free_bytes; // one cell more: the next record's empty stamp
    if (capacity_ - int64_t(position_ - consumed_) < needed) {
        if (!refresh_consumed(consumed_word(base_).load(std::memory_order_acquire)))
            return false;
        if (capacity_ - int64_t(position_ - consumed_) < needed)
            return false;
    }
    int64_t next = offset_ + size;
    if (next >= capacity_)
        next -= capacity_;
    word_at(cell(next)).store(0, std::memory_order_relaxed);
    if (out.is_inline) {
        if (out.length > 0)
            std::memcpy(out.small, payload, out.length);
    } else if (out.length > 0) {
        const int64_t start = offset_ + kCellBytes == capacity_ ? 0 : offset_ + kCellBytes;
        const int64_t first = std::min<int64_t>(out.length, capacity_ - start);
        copy(cell(start), payload, first);
        if (first < int64_t(out.length))
            copy(cell(0), static_cast<const unsigned char*>(payload) + first, out.length - first);
    }
    unsigned char* at = cell(offset_);
    std::memcpy(at + sizeof(uint64_t), reinterpret_cast<unsigned char*>(&out) + sizeof(uint64_t),
                kCellBytes - sizeof(uint64_t));
    word_at(at).store(position_ + 1, std::memory_order_release);
    position_ += size;
    offset_ = next;
    return true;
}

bool RingWriter::await_room() {
    if (corrupt_)
        return false;
    if (wants_room_word(base_).load(std::memory_order_seq_cst) == 0)
        wants_room_word(base_).exchange(1, std::memory_order_seq_cst);
    const uint64_t before = consumed_;
    return refresh_consumed(consumed_word(base_).load(std::memory_order_seq_cst)) && consumed_ != before;
}

RingReader::RingReader(const RingMemory& memory)
    : base_(static_cast<unsigned char*>(memory.base)), data_(base_ + kControlBytes),
      capacity_(memory.bytes - kControlBytes) {
    COLLECTIVES_CHECK(check_ring_memory(memory).ok());
}

RingReader::Peek RingReader::refuse(const std::string& what) {
    error_ = "corrupt message record at byte " + std::to_string(position_) + ": " + what;
    return Peek::corrupt;
}

RingReader::Peek RingReader::peek() {
    const uint64_t stamp = word_at(data_ + offset_).load(std::memory_order_acquire);
    if (stamp == 0)
        return Peek::empty;
    if (stamp != position_ + 1)
        return refuse("stamp " + std::to_string(stamp));
    // A private copy: what is checked below cannot change afterwards.
    std::memcpy(reinterpret_cast<unsigned char*>(&header_) + sizeof(uint64_t), data_ + offset_ + sizeof(uint64_t),
                kCellBytes - sizeof(uint64_t));
    header_.stamp = stamp;
    if (!check_header())
        return refuse("kind " + std::to_string(int(header_.kind)) + ", length " + std::to_string(header_.length) +
                      ", total " + std::to_string(header_.total) + ", offset " + std::to_string(header_.offset));
    return Peek::record;
}

bool RingReader::check_header() {
    const RecordHeader& h = header_;
    constexpr uint64_t kMaxTotal = uint64_t(1) << 62;
    if (h.is_inline != uint8_t(may_be_inline(h)) || h.reserved != 0)
        return false;
    if (h.is_inline)
        return true;
    if (record_bytes(h) + kCellBytes > capacity_)
        return false;
    switch (h.kind) {
    case RecordKind::eager: return h.total == h.length && h.offset == 0;
    case RecordKind::fragment:
        return h.length > 0 && h.total <= kMaxTotal && h.offset <= h.total && h.length <= h.total - h.offset;
    case RecordKind::request_to_send:
    case RecordKind::mismatch: return h.length == 0 && h.total <= kMaxTotal;
    case RecordKind::clear_to_send:
    case RecordKind::cancel:
    case RecordKind::refuse: return h.length == 0;
    case RecordKind::none: break;
    }
    return false;
}

void RingReader::read_payload(void* to, CopyFunction copy) const {
    if (header_.length == 0)
        return;
    if (header_.is_inline) {
        std::memcpy(to, header_.small, header_.length);
        return;
    }
    const int64_t start = offset_ + kCellBytes == capacity_ ? 0 : offset_ + kCellBytes;
    const int64_t first = std::min<int64_t>(header_.length, capacity_ - start);
    copy(to, data_ + start, first);
    if (first < int64_t(header_.length))
        copy(static_cast<unsigned char*>(to) + first, data_, header_.length - first);
}

void RingReader::pop() {
    const int64_t size = record_bytes(header_);
    position_ += size;
    offset_ += size;
    if (offset_ >= capacity_)
        offset_ -= capacity_;
}

bool RingReader::publish() {
    if (position_ == published_)
        return false;
    published_ = position_;
    consumed_word(base_).exchange(position_, std::memory_order_seq_cst);
    if (wants_room_word(base_).load(std::memory_order_seq_cst) == 0)
        return false;
    wants_room_word(base_).exchange(0, std::memory_order_seq_cst);
    return true;
}

} // namespace collectives
