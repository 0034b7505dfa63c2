// Records to frames and back. See wire_messages.h.
#include "engine/wire_messages.h"

#include <cstring>

#include "base/clock.h"

namespace collectives {
namespace {

constexpr int64_t kRingBytes = 256 << 10;
constexpr int64_t kMostQueuedBytes = 512 << 10; // on the control connection; the rest stays in the ring
constexpr int64_t kConnectNs = 30 * kSecond;    // patience with a connection that is made for a message

void plain_copy(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, size_t(bytes)); }

} // namespace

WireMessages::Rings WireMessages::rings_of(TcpLink& link) {
    auto [it, made] = channels_.try_emplace(&link);
    Channel& channel = it->second;
    if (made) {
        channel.memory = std::make_unique<uint8_t[]>(size_t(2 * kRingBytes + kCellBytes));
        auto start = (reinterpret_cast<uintptr_t>(channel.memory.get()) + kCellBytes - 1) / kCellBytes * kCellBytes;
        channel.tx = {reinterpret_cast<void*>(start), kRingBytes};
        channel.rx = {reinterpret_cast<void*>(start + kRingBytes), kRingBytes};
        channel.reader = RingReader(channel.tx);
        channel.writer = RingWriter(channel.rx);
    }
    return {channel.tx, channel.rx, made};
}

bool WireMessages::pump() {
    if (!written_.exchange(false, std::memory_order_acq_rel))
        return false;
    bool moved = false;
    for (auto& [link, channel] : channels_) moved |= pump(*link, channel);
    return moved;
}

bool WireMessages::pump(TcpLink& link, Channel& channel) {
    bool moved = false;
    while (channel.reader.peek() == RingReader::Peek::record) {
        if (!link.lost() && mesh_.queued_bytes(link) > kMostQueuedBytes) {
            written(); // look again
            break;
        }
        const RecordHeader& record = channel.reader.header();
        OutFrame* frame = mesh_.take_frame(sizeof record + size_t(record.length));
        frame->header.kind = wire::FrameKind::message;
        frame->header.slot = sizeof record;
        frame->header.length = frame->own_payload.size();
        std::memcpy(frame->own_payload.data(), &record, sizeof record);
        channel.reader.read_payload(frame->own_payload.data() + sizeof record, plain_copy);
        channel.reader.pop();
        mesh_.post(link, frame, deadline_after(monotonic_ns(), kConnectNs));
        moved = true;
    }
    (void)channel.reader.publish(); // the messenger tries again in its next pass
    return moved;
}

bool WireMessages::arrived(TcpLink& link, const wire::FrameHeader& header, const uint8_t* payload) {
    RecordHeader record;
    if (header.slot != sizeof record || header.length < sizeof record)
        return true; // no record: dropped
    std::memcpy(&record, payload, sizeof record);
    if (record.length != header.length - sizeof record)
        return true;
    (void)rings_of(link);
    return channels_.at(&link).writer.try_write(record, payload + sizeof record, 0, plain_copy);
}

} // namespace collectives
