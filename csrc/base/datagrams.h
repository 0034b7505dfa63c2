// Datagrams: a UDP socket that never blocks, and batches of datagrams to and from it, many a system call (recvmmsg,
// sendmmsg; with UDP_SEGMENT and UDP_GRO also many a message). Memory is taken when a batch is made, none for a datagram.
// Linux. Nothing here is thread-safe. May be included by switch and innetwork; includes base only.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <sys/uio.h>

#include "base/ip_port.h"
#include "base/status.h"

namespace collectives {

/// What happens to a datagram that is longer than the path takes.
enum class PathMtu : uint8_t {
    fragment, // it travels in pieces, the loss of any of which loses it
    obey,     // it is refused here once a router has said so (EMSGSIZE), and lost before
    probe,    // likewise lost, but only the interface's own limit is obeyed: nobody can talk us into smaller ones
};

struct DatagramOptions {
    int send_buffer_bytes =
        8 << 20; // asked for; without privileges the system gives less (net.core.wmem_max, rmem_max)
    int receive_buffer_bytes = 8 << 20;
    bool offload = true; // UDP_GRO and UDP_SEGMENT, where the kernel has them
    PathMtu path_mtu = PathMtu::probe;
};

class DatagramSocket {
  public:
    /// Bound to an address of this host, never to all; port 0: a free one. Errors: internal, with the address and why;
    /// invalid_argument where it is the address of all interfaces.
    static Status open(const IpPort& at, const DatagramOptions& options, DatagramSocket* out);

    DatagramSocket() = default;
    DatagramSocket(DatagramSocket&& other) noexcept { *this = std::move(other); }
    DatagramSocket& operator=(DatagramSocket&& other) noexcept;
    ~DatagramSocket();

    /// From now on it sends to that address only, and takes nothing from others. Errors: internal.
    Status connect(const IpPort& to);

    int fd() const { return fd_; } // to wait for with poll(); -1: not open
    const IpPort& address() const { return address_; }
    bool connected() const { return connected_; }
    bool coalesces() const { return coalesces_; } // UDP_GRO is on
    bool segments() const { return segments_; }   // UDP_SEGMENT can be used
    int send_buffer_bytes() const;                // as got
    int receive_buffer_bytes() const;

  private:
    void ask_for(const DatagramOptions& options);

    int fd_ = -1;
    IpPort address_;
    bool connected_ = false, coalesces_ = false, segments_ = false;
};

/// One that came. `bytes` is one more than DatagramReceiver's `most_bytes` for any that was longer.
struct Datagram {
    const uint8_t* data = nullptr;
    size_t bytes = 0;
    IpPort from; // of a connected socket: left empty, for it can only be one
};

class DatagramReceiver {
  public:
    /// Up to `messages` a system call. Memory: (most_bytes + 1) a message, 64 KiB where the socket coalesces.
    DatagramReceiver(const DatagramSocket& socket, int messages, size_t most_bytes);

    /// What has come, in the order of its coming; 0: nothing, or an error (see last_error). Never blocks. Its memory is
    /// good until the next call.
    int receive();
    const Datagram& operator[](int i) const { return datagrams_[size_t(i)]; }

    /// errno of the newest call that failed with something other than "nothing there"; a connected socket says
    /// ECONNREFUSED when nobody listens at the other end. Forgotten when told.
    int take_error();
    uint64_t calls() const { return calls_; }

  private:
    void reset(int message);
    void split(int message);

    const int fd_;
    const bool connected_;
    const size_t most_bytes_, room_bytes_;
    std::vector<uint8_t> memory_;
    std::vector<sockaddr_storage> names_;
    std::vector<iovec> pieces_;
    std::vector<mmsghdr> messages_;
    std::unique_ptr<uint8_t[]> controls_;
    std::vector<Datagram> datagrams_;
    int used_ = 0, found_ = 0; // of messages_, of datagrams_
    int error_ = 0;
    uint64_t calls_ = 0;
};

class DatagramSender {
  public:
    /// Up to `most_datagrams` wait in it.
    DatagramSender(const DatagramSocket& socket, int most_datagrams);

    bool full() const { return count_ == most_; }
    int waiting() const { return count_ - next_; }
    /// Not when full. Nothing is copied: the bytes must stay as they are until flush() returned 0. Neighbours of one
    /// destination and size share a message where the socket segments. `to` means nothing to a connected socket.
    void add(const uint8_t* data, size_t bytes, const IpPort& to = {});
    /// Hands over what waits; never blocks. How many still wait, for the socket's buffer is full: wait for POLLOUT. One
    /// that is refused for another reason is given up and counted.
    int flush();
    /// Gives up what waits, counted as failed.
    void drop();

    uint64_t sent() const { return sent_; }
    uint64_t failed() const { return failed_; }
    uint64_t calls() const { return calls_; }
    /// errno of the newest that was refused, e.g. EMSGSIZE; forgotten when told.
    int take_error();

  private:
    int gather();
    bool joins(int first, int other, size_t bytes_so_far) const;
    bool skip(int error);

    const int fd_;
    const bool connected_;
    bool segments_;
    const int most_;
    std::vector<iovec> pieces_; // one a datagram
    std::vector<IpPort> to_;
    std::vector<sockaddr_storage> names_; // of messages, as the rest
    std::vector<mmsghdr> messages_;
    std::unique_ptr<uint8_t[]> controls_;
    int next_ = 0, count_ = 0; // of pieces_: those between wait
    int error_ = 0;
    uint64_t sent_ = 0, failed_ = 0, calls_ = 0;
};

} // namespace collectives
