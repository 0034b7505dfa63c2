// Datagram sockets and batches. See datagrams.h.
#include "base/datagrams.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <netinet/in.h>
#include <netinet/udp.h>
#include <unistd.h>

#include "base/check.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace collectives {
namespace {

constexpr size_t kControlBytes = 64; // one int, with its header
static_assert(CMSG_SPACE(sizeof(int)) <= kControlBytes);
constexpr size_t kMostMessageBytes = 65000; // of a segmented message; IP ends at 65,535 with its headers
constexpr int kMostSegments = 64;           // of the kernel, for all its versions
constexpr int kMostCoalesced = 128;         // that newer ones put together
constexpr int kMostMessages = 1024;         // a system call takes (UIO_MAXIOV)

void set_option(int fd, int level, int name, int value) { (void)setsockopt(fd, level, name, &value, sizeof value); }

int option(int fd, int level, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, name, &value, &length) == 0 ? value : -1;
}

/// What the system counts in a buffer is about twice what the data take, and it doubles the number itself.
void ask_for_buffer(int fd, int forced, int name, int bytes) {
    if (setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof bytes) != 0)
        set_option(fd, SOL_SOCKET, name, bytes);
}

Status failed(const std::string& what, const IpPort& at) {
    return Status(Code::internal, what + " " + at.text() + ": " + std::strerror(errno));
}

} // namespace

DatagramSocket& DatagramSocket::operator=(DatagramSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(address_, other.address_);
    std::swap(connected_, other.connected_);
    std::swap(coalesces_, other.coalesces_);
    std::swap(segments_, other.segments_);
    return *this;
}

DatagramSocket::~DatagramSocket() {
    if (fd_ >= 0)
        close(fd_);
}

Status DatagramSocket::open(const IpPort& at, const DatagramOptions& options, DatagramSocket* out) {
    IpPort everywhere;
    everywhere.port = at.port;
    if (at == everywhere || at == ipv4_port(0, 0, 0, 0, at.port))
        return Status(Code::invalid_argument, at.text() + " is all interfaces: name the address of one");
    DatagramSocket made;
    sockaddr_storage name{};
    socklen_t length = to_sockaddr(at, &name);
    made.fd_ = socket(name.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made.fd_ < 0)
        return failed("cannot open a UDP socket for", at);
    if (name.ss_family == AF_INET6)
        set_option(made.fd_, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (bind(made.fd_, reinterpret_cast<sockaddr*>(&name), length) != 0)
        return failed("cannot bind a UDP socket to", at);
    length = sizeof name;
    if (getsockname(made.fd_, reinterpret_cast<sockaddr*>(&name), &length) != 0)
        return failed("cannot ask for the port of", at);
    made.address_ = from_sockaddr(reinterpret_cast<sockaddr*>(&name));
    made.ask_for(options);
    *out = std::move(made);
    return {};
}

void DatagramSocket::ask_for(const DatagramOptions& options) {
    ask_for_buffer(fd_, SO_SNDBUFFORCE, SO_SNDBUF, options.send_buffer_bytes);
    ask_for_buffer(fd_, SO_RCVBUFFORCE, SO_RCVBUF, options.receive_buffer_bytes);
    const int four[] = {IP_PMTUDISC_DONT, IP_PMTUDISC_DO, IP_PMTUDISC_PROBE};
    const int six[] = {IPV6_PMTUDISC_DONT, IPV6_PMTUDISC_DO, IPV6_PMTUDISC_PROBE};
    if (address_.is_ipv4())
        set_option(fd_, IPPROTO_IP, IP_MTU_DISCOVER, four[size_t(options.path_mtu)]);
    else
        set_option(fd_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, six[size_t(options.path_mtu)]);
    if (!options.offload)
        return;
    const int on = 1;
    coalesces_ = setsockopt(fd_, IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0;
    segments_ = option(fd_, IPPROTO_UDP, UDP_SEGMENT) >= 0; // asked only: the size comes with each message
}

Status DatagramSocket::connect(const IpPort& to) {
    sockaddr_storage name{};
    const socklen_t length = to_sockaddr(to, &name);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&name), length) != 0)
        return failed("cannot connect " + address_.text() + " with", to);
    connected_ = true;
    return {};
}

int DatagramSocket::send_buffer_bytes() const { return option(fd_, SOL_SOCKET, SO_SNDBUF) / 2; }
int DatagramSocket::receive_buffer_bytes() const { return option(fd_, SOL_SOCKET, SO_RCVBUF) / 2; }

DatagramReceiver::DatagramReceiver(const DatagramSocket& socket, int messages, size_t most_bytes)
    : fd_(socket.fd()), connected_(socket.connected()), most_bytes_(most_bytes),
      room_bytes_(socket.coalesces() ? std::max(most_bytes + 1, size_t(65536)) : most_bytes + 1) {
    COLLECTIVES_CHECK(messages >= 1 && messages <= kMostMessages);
    const size_t n = size_t(messages);
    memory_.resize(n * room_bytes_);
    names_.resize(n);
    pieces_.resize(n);
    messages_.resize(n);
    controls_ = std::make_unique<uint8_t[]>(n * kControlBytes);
    datagrams_.resize(n * (socket.coalesces() ? kMostCoalesced : 1));
    for (size_t i = 0; i < n; ++i) {
        pieces_[i] = {&memory_[i * room_bytes_], room_bytes_};
        msghdr& header = messages_[i].msg_hdr;
        header.msg_iov = &pieces_[i];
        header.msg_iovlen = 1;
        if (!connected_)
            header.msg_name = &names_[i];
        if (socket.coalesces())
            header.msg_control = &controls_[i * kControlBytes];
        reset(int(i));
    }
}

void DatagramReceiver::reset(int message) { // what the kernel has changed
    msghdr& header = messages_[size_t(message)].msg_hdr;
    header.msg_namelen = header.msg_name != nullptr ? sizeof names_[0] : 0;
    header.msg_controllen = header.msg_control != nullptr ? kControlBytes : 0;
}

int DatagramReceiver::receive() {
    for (int i = 0; i < used_; ++i) reset(i);
    used_ = found_ = 0;
    ++calls_;
    const int n = recvmmsg(fd_, messages_.data(), unsigned(messages_.size()), MSG_DONTWAIT, nullptr);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            error_ = errno;
        return 0;
    }
    used_ = n;
    for (int i = 0; i < n; ++i) split(i);
    return found_;
}

/// A message is one datagram, or several of one size of which the last may be shorter.
void DatagramReceiver::split(int message) {
    msghdr& header = messages_[size_t(message)].msg_hdr;
    size_t left = messages_[size_t(message)].msg_len, each = left;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c))
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int size = 0;
            std::memcpy(&size, CMSG_DATA(c), sizeof size);
            each = size > 0 ? size_t(size) : left;
        }
    IpPort from;
    if (!connected_)
        from = from_sockaddr(reinterpret_cast<sockaddr*>(&names_[size_t(message)]));
    const uint8_t* at = static_cast<const uint8_t*>(pieces_[size_t(message)].iov_base);
    do { // once for an empty one
        const size_t bytes = std::min(each, left);
        if (size_t(found_) < datagrams_.size())
            datagrams_[size_t(found_++)] = {at, std::min(bytes, most_bytes_ + 1), from};
        at += bytes;
        left -= bytes;
    } while (left > 0);
}

int DatagramReceiver::take_error() { return std::exchange(error_, 0); }

DatagramSender::DatagramSender(const DatagramSocket& socket, int most_datagrams)
    : fd_(socket.fd()), connected_(socket.connected()), segments_(socket.segments()), most_(most_datagrams) {
    COLLECTIVES_CHECK(most_datagrams >= 1);
    const size_t n = size_t(most_datagrams), messages = std::min(n, size_t(kMostMessages));
    pieces_.resize(n);
    to_.resize(n);
    names_.resize(messages);
    messages_.resize(messages);
    controls_ = std::make_unique<uint8_t[]>(messages * kControlBytes);
}

void DatagramSender::add(const uint8_t* data, size_t bytes, const IpPort& to) {
    COLLECTIVES_CHECK(!full());
    pieces_[size_t(count_)] = {const_cast<uint8_t*>(data), bytes}; // sendmmsg only reads it
    if (!connected_)
        to_[size_t(count_)] = to;
    ++count_;
}

bool DatagramSender::joins(int first, int other, size_t bytes_so_far) const {
    const size_t each = pieces_[size_t(first)].iov_len, last = pieces_[size_t(other - 1)].iov_len;
    const size_t next = pieces_[size_t(other)].iov_len;
    return segments_ && other - first < kMostSegments && last == each && next <= each && next > 0 &&
           bytes_so_far + next <= kMostMessageBytes && (connected_ || to_[size_t(first)] == to_[size_t(other)]);
}

/// Messages of the datagrams that wait; how many.
int DatagramSender::gather() {
    int n = 0;
    for (int i = next_; i < count_ && size_t(n) < messages_.size(); ++n) {
        size_t bytes = pieces_[size_t(i)].iov_len;
        int end = i + 1;
        for (; end < count_ && joins(i, end, bytes); ++end) bytes += pieces_[size_t(end)].iov_len;
        msghdr& header = messages_[size_t(n)].msg_hdr;
        header = {};
        header.msg_iov = &pieces_[size_t(i)];
        header.msg_iovlen = size_t(end - i);
        if (!connected_) {
            header.msg_name = &names_[size_t(n)];
            header.msg_namelen = to_sockaddr(to_[size_t(i)], &names_[size_t(n)]);
        }
        if (end - i > 1) {
            header.msg_control = &controls_[size_t(n) * kControlBytes];
            header.msg_controllen = CMSG_SPACE(sizeof(uint16_t));
            cmsghdr* control = CMSG_FIRSTHDR(&header);
            control->cmsg_level = IPPROTO_UDP;
            control->cmsg_type = UDP_SEGMENT;
            control->cmsg_len = CMSG_LEN(sizeof(uint16_t));
            const uint16_t each = uint16_t(pieces_[size_t(i)].iov_len);
            std::memcpy(CMSG_DATA(control), &each, sizeof each);
        }
        i = end;
    }
    return n;
}

/// After an error: whether to go on.
bool DatagramSender::skip(int error) {
    if (error == EAGAIN || error == EWOULDBLOCK)
        return false;
    if (error == EINTR)
        return true;
    if (error == ECONNREFUSED) { // of an earlier one, told now; this one has not been looked at
        error_ = error;
        return true;
    }
    if (messages_[0].msg_hdr.msg_iovlen > 1) { // some path does not segment, or one of them is too long: one by one
        segments_ = false;
        return true;
    }
    error_ = error;
    ++failed_;
    ++next_;
    return true;
}

int DatagramSender::flush() {
    while (next_ < count_) {
        const int n = gather();
        ++calls_;
        const int sent = sendmmsg(fd_, messages_.data(), unsigned(n), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && !skip(errno))
            return waiting();
        for (int i = 0; i < sent; ++i) {
            next_ += int(messages_[size_t(i)].msg_hdr.msg_iovlen);
            sent_ += messages_[size_t(i)].msg_hdr.msg_iovlen;
        }
    }
    next_ = count_ = 0;
    return 0;
}

void DatagramSender::drop() {
    failed_ += uint64_t(waiting());
    next_ = count_ = 0;
}

int DatagramSender::take_error() { return std::exchange(error_, 0); }

} // namespace collectives
