// WireMessages: carries the records of the messenger's rings between hosts. The messenger writes into a ring and reads from
// one, as within a host; both lie in this process, and what one side wrote is sent as frames and written into the other's.
// Private to the engine.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "transport/ring.h"
#include "transport/tcp_mesh.h"

namespace collectives {

class WireMessages {
  public:
    explicit WireMessages(TcpMesh& mesh) : mesh_(mesh) {}

    /// The two rings of a link, zeroed; made when new. With the mesh's lock.
    struct Rings {
        RingMemory tx, rx;
        bool made;
    };
    Rings rings_of(TcpLink& link);

    /// Records were written: the messenger's wake. Any thread, under any lock.
    void written() { written_.store(true, std::memory_order_release); }
    bool pending() const { return written_.load(std::memory_order_acquire); }
    /// Records of this link that are not frames yet. With the mesh's lock.
    bool waiting(TcpLink& link) {
        auto it = channels_.find(&link);
        return it != channels_.end() && it->second.reader.peek() == RingReader::Peek::record;
    }
    /// Sends what the messenger wrote. With the mesh's lock. True: something moved.
    bool pump();
    /// A frame with a record: false when the ring has no room. With the mesh's lock.
    bool arrived(TcpLink& link, const wire::FrameHeader& header, const uint8_t* payload);

  private:
    struct Channel {
        std::unique_ptr<uint8_t[]> memory;
        RingMemory tx, rx;
        RingReader reader; // of tx
        RingWriter writer; // of rx
    };
    bool pump(TcpLink& link, Channel& channel);

    TcpMesh& mesh_;
    std::map<TcpLink*, Channel> channels_;
    std::atomic<bool> written_{false};
};

} // namespace collectives
