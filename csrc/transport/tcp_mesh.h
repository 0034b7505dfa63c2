// TcpMesh: the links of this process to processes on other hosts, the listener that they reach it by, and the epoll that
// tells when there is something to do. One a node; all groups share it. Never blocks, except in sleep().
// May be included by transport and engine.
//
// Lock: everything but sleep() wants mutex() held; callbacks of FrameSink and FrameOwner run with it held.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/hello.h"
#include "transport/tcp_connection.h"
#include "transport/tcp_socket.h"

namespace collectives {

struct TcpConfig {
    std::string interface; // its name or address; empty: chosen by the route to `towards`
    std::string towards;   // a name or address of where the job meets
    std::string secret;    // of the job, besides the one of each process
    int streams = 1;       // data connections to each peer
    int wake_fd = -1;      // of the node's bell: ends a sleep; not owned
};

/// What a process says of itself so that others can reach it: travels through the bootstrap.
struct TcpPeer {
    Uuid uuid{};
    std::string share; // its secret
    std::string host;
    int64_t pid = 0;
    std::string address; // "10.0.0.1:4711"
};

/// A process that is reached over TCP.
class TcpLink {
  public:
    const Uuid& uuid() const { return peer_.uuid; }
    const TcpPeer& peer() const { return peer_; }
    /// Read by any thread: the process is gone or cannot be reached; why, once it is.
    bool lost() const { return lost_.load(std::memory_order_acquire); }
    const std::string& why_lost() const { return why_; }
    /// It said good-bye first.
    bool left() const { return left_.load(std::memory_order_acquire); }
    void set_left() { left_.store(true, std::memory_order_release); }
    /// Whether something was ever sent to it.
    bool used() const { return out_[kControlLane] != nullptr || !waiting_.empty(); }

    static constexpr int kControlLane = 0;

  private:
    friend class TcpMesh;
    TcpPeer peer_;
    std::vector<std::unique_ptr<TcpConnection>> out_; // by lane; made when something is sent
    std::vector<TcpConnection*> in_;
    int64_t retry_ns_ = 0; // not before this
    int64_t give_up_ns_ = 0;
    std::string last_error_;
    std::vector<OutFrame*> waiting_; // for the connection of their lane, with the lane in `next`'s place
    std::vector<int> waiting_lanes_;
    std::atomic<bool> lost_{false}, left_{false};
    std::string why_;
};

class TcpMesh {
  public:
    /// Listens. Errors: invalid_argument (no such interface), internal.
    static Status create(const TcpConfig& config, const Hello& own, std::unique_ptr<TcpMesh>* out);
    ~TcpMesh();

    const std::string& address() const { return address_; }
    /// What was chosen to listen on, and why.
    const std::string& why() const { return why_; }
    const std::string& interface() const { return config_.interface; } // as it was asked for
    bool loopback() const { return loopback_; }
    int streams() const { return config_.streams; }
    std::mutex& mutex() { return mutex_; }
    void set_sink(FrameSink* sink) { sink_ = sink; }

    /// The link to a process, made when new.
    TcpLink* link_to(const TcpPeer& peer);
    /// Begins to connect to it if that has not happened: so that its end is noticed, whoever sends first.
    void want(TcpLink& link, int64_t deadline_ns);
    /// Queues a frame on the control lane, or on the data lane with the least to do, and sends what can be sent. A lost
    /// link drops it.
    void post(TcpLink& link, OutFrame* frame, int64_t deadline_ns);
    /// A frame of the pool's, to be filled and posted.
    OutFrame* take_frame(size_t payload_bytes) { return pool_.take(payload_bytes); }
    /// A frame with a payload of its own, copied, on the control lane.
    void post_notice(TcpLink& link, const wire::FrameHeader& header, const void* payload, int64_t deadline_ns);
    /// Bytes that wait on the control connection.
    int64_t queued_bytes(const TcpLink& link) const {
        auto& control = link.out_[TcpLink::kControlLane];
        return control != nullptr ? control->queued_bytes() : 0;
    }
    /// The owner's frames go no further; where one is half sent, the rest is copied first. Payloads that are arriving at
    /// [begin, end) are forgotten. Afterwards nothing refers to the owner or that memory.
    void withdraw(TcpLink& link, const FrameOwner* owner);
    void forget_place(const uint8_t* begin, const uint8_t* end);

    /// Does what can be done without waiting. True: something moved.
    bool progress();
    /// The peer is not needed any more in this state: the link is lost, and the sink is told.
    void lose(TcpLink& link, const std::string& why);
    /// Says good-bye on every connection, as far as that goes without waiting.
    void say_goodbye();
    /// Whether output waits for a socket, a connection for its handshake, or a frame for its receiver. Any thread.
    bool pending() const { return pending_.load(std::memory_order_acquire); }

    /// Sleeps until a socket is ready, the node's bell rings, or the time is over. Without the lock.
    void sleep(int64_t ns);

    int64_t strangers() const { return strangers_.load(std::memory_order_relaxed); } // connections refused
    void close_descriptors();                                                        // in a forked child

  private:
    TcpMesh() = default;
    TcpConnection* connect(TcpLink& link, int lane);
    void watch(TcpConnection& connection);
    void collect();
    void look(TcpConnection* connection);
    void accept_all();
    void opened(TcpConnection& connection);
    bool serve(TcpConnection& connection);
    void failed(TcpConnection& connection);
    void sweep(int64_t now_ns);
    void send_waiting(TcpLink& link);
    TcpLink* find(const Uuid& uuid);
    TcpLink* link_of(const TcpConnection& connection);
    void refuse(const TcpConnection& connection);
    bool has_output() const;

    TcpConfig config_;
    Hello own_;
    std::string address_, why_;
    bool loopback_ = false;
    int listener_ = -1, epoll_ = -1;
    FrameSink* sink_ = nullptr;
    std::mutex mutex_;
    FramePool pool_; // before the connections, which give their frames back
    std::map<Uuid, std::unique_ptr<TcpLink>> links_;
    std::map<TcpConnection*, TcpLink*> outgoing_;
    std::vector<std::unique_ptr<TcpConnection>> accepted_;
    std::vector<TcpConnection*> work_, working_;
    std::vector<std::unique_ptr<TcpConnection>> graveyard_; // until nothing in this pass refers to them
    bool listener_ready_ = true;
    int64_t swept_ns_ = 0;
    std::atomic<int64_t> strangers_{0};
    std::atomic<bool> pending_{false};
};

} // namespace collectives
