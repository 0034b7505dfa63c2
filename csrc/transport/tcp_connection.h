// One TCP connection between two processes of a job: the proof that each belongs to it, then frames one way. Data flows
// from the side that connected to the side that accepted; each process connects to those that it sends to. A machine that
// never blocks: the mesh tells it when the socket may be read or written. Included by transport only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/hello.h"
#include "wire/frame.h"

namespace collectives {

class TcpLink;
struct OutFrame;

/// Told when a frame's last byte is in the kernel's hands: its payload may be overwritten.
class FrameOwner {
  public:
    virtual void frame_sent(OutFrame& frame) = 0;

  protected:
    ~FrameOwner() = default;
};

/// A frame on its way out. Its owner keeps it, and its payload, until frame_sent or TcpMesh::withdraw.
struct OutFrame {
    wire::FrameHeader header;
    const uint8_t* payload = nullptr; // header.length bytes
    FrameOwner* owner = nullptr;      // null: it is one of the pool's
    uint64_t cookie = 0;              // the owner's
    std::vector<uint8_t> own_payload; // of frames without an owner
    OutFrame* next = nullptr;         // the connection's
    int64_t done_bytes = 0;
};

/// Frames without an owner, with their payload. Those that are done serve again, so that a message allocates nothing.
class FramePool {
  public:
    /// With room for so many bytes in own_payload, which is its payload.
    OutFrame* take(size_t payload_bytes);
    void give(OutFrame* frame);

  private:
    std::vector<std::unique_ptr<OutFrame>> spare_;
};

/// Where the payload of a data frame goes.
struct Landing {
    enum Kind : uint8_t { place, discard, later } kind = discard;
    uint8_t* data = nullptr;
};

/// What the frames mean: the engine. Called with the mesh's lock held.
class FrameSink {
  public:
    /// A data frame has begun to arrive. `later`: leave it in the socket, and ask again.
    virtual Landing land(TcpLink& link, const wire::FrameHeader& header) = 0;
    /// Its payload has arrived, at `data` (null: it was discarded).
    virtual void landed(TcpLink& link, const wire::FrameHeader& header, uint8_t* data) = 0;
    /// A frame of another kind, whole. False: no room for it now, ask again.
    virtual bool notice(TcpLink& link, const wire::FrameHeader& header, const uint8_t* payload) = 0;
    /// The peer's process is gone, or cannot be reached.
    virtual void lost(TcpLink& link) = 0;

  protected:
    ~FrameSink() = default;
};

class TcpConnection {
  public:
    /// `greeting`: bytes of both greetings before the frames; `proving`: the acceptor waits for the last of them.
    enum class Stage : uint8_t { connecting, greeting, proving, open, dead };

    /// The pool must live longer.
    TcpConnection(int fd, bool acceptor, int lane, const Uuid& own, std::string key, int64_t deadline_ns,
                  FramePool* pool);
    ~TcpConnection();
    TcpConnection(const TcpConnection&) = delete;

    int fd() const { return fd_; }
    Stage stage() const { return stage_; }
    bool acceptor() const { return acceptor_; }
    int lane() const { return lane_; }
    int64_t deadline_ns() const { return deadline_ns_; } // of the handshake
    const Uuid& peer() const { return peer_; }           // proven once open
    const std::string& why_dead() const { return why_; }
    void kill(const std::string& why);

    /// Goes on with the handshake as far as it can. True: something moved.
    bool shake_hands();
    /// Reads frames until the socket is empty, a frame has to wait, or `most_bytes` were read. True: something moved.
    bool receive(TcpLink& link, FrameSink& sink, int64_t most_bytes);
    /// Writes queued frames until the socket is full. True: something moved. Frames that are done are unlinked first.
    bool flush();

    void push(OutFrame* frame);
    bool has_output() const { return first_ != nullptr; }
    int64_t queued_bytes() const { return queued_bytes_; }
    /// Drops the frames of this owner; the rest of one that is half sent is copied, and goes out without it.
    void withdraw(const FrameOwner* owner);
    /// Bytes that are on their way to [begin, end) are read and forgotten instead.
    void forget_place(const uint8_t* begin, const uint8_t* end);

    bool readable = true, writable = true; // as far as is known: edges of epoll set them
    bool ending = false;                   // the peer closes it: there is an end to be read
    bool stalled = false;                  // the frame at the front waits for its receiver
    bool listed = false;                   // in the mesh's list of those to look at

  private:
    struct Greeting {
        char magic[8];
        uint8_t uuid[16];
        uint8_t nonce[32];
        uint8_t lane;
        uint8_t zero[7];
    };
    static_assert(sizeof(Greeting) == 64);
    static constexpr int kMacBytes = 32;

    bool send_all(const void* data, size_t bytes);
    bool take(void* data, size_t bytes);
    void mac(char role, const Greeting& prover, const Greeting& verifier, uint8_t* out) const;
    bool greet();
    bool answer();
    bool check_answer();
    bool check_proof();
    void open();

    bool fill();
    void set_low_water();
    bool parse(TcpLink& link, FrameSink& sink);
    bool begin_frame(TcpLink& link, FrameSink& sink);
    void end_payload(TcpLink& link, FrameSink& sink);
    bool read_failed(long n);
    void finished(OutFrame* frame);

    int fd_;
    FramePool* const pool_;
    const bool acceptor_;
    int lane_;
    Stage stage_;
    int64_t deadline_ns_;
    std::string key_, why_;
    Uuid peer_{};
    Greeting own_{}, theirs_{};

    std::vector<uint8_t> in_; // taken when the connection opens
    size_t begin_ = 0, end_ = 0;
    bool in_payload_ = false;
    int low_water_ = 1; // SO_RCVLOWAT
    wire::FrameHeader header_;
    uint8_t* place_ = nullptr;
    uint64_t arrived_bytes_ = 0; // of the payload

    OutFrame* first_ = nullptr;
    OutFrame* last_ = nullptr;
    int64_t queued_bytes_ = 0;
};

} // namespace collectives
