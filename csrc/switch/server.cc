// The thread of the software switch, and its sockets. See server.h.
#include "switch/server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

namespace collectives::aggregation {
namespace {

constexpr int kSendTries = 20;    // of a millisecond each, for a socket whose buffer is full
constexpr int kMostReplies = 64;  // that wait for the end of a batch
constexpr int kMostWaiting = 512; // datagrams of a socket

size_t room_for(size_t bytes) { return (bytes + 63) / 64 * 64; } // a cache line is one packet's

} // namespace

SwitchServer::Door::Door(DatagramSocket opened, int batch)
    : socket(std::move(opened)), receiver(socket, batch, wire::kMostPacketBytes), sender(socket, kMostWaiting) {}

SwitchServer::SwitchServer(const ServerOptions& options) : options_(options), pipeline_(options.pool_bytes) {}

Status SwitchServer::start(const std::vector<IpPort>& addresses, const ServerOptions& options,
                           std::unique_ptr<SwitchServer>* out) {
    std::unique_ptr<SwitchServer> made(new SwitchServer(options));
    COLLECTIVES_RETURN_IF_ERROR(made->open(addresses));
    made->thread_ = std::thread([server = made.get()] { server->run(); });
    *out = std::move(made);
    return {};
}

Status SwitchServer::open(const std::vector<IpPort>& addresses) {
    if (addresses.empty())
        return Status(Code::invalid_argument, "a switch needs an address to listen at");
    for (const IpPort& address : addresses) {
        DatagramSocket socket;
        COLLECTIVES_RETURN_IF_ERROR(DatagramSocket::open(address, options_.datagrams, &socket));
        addresses_.push_back(socket.address());
        doors_.push_back(std::make_unique<Door>(std::move(socket), options_.batch));
    }
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0)
        return Status(Code::internal, std::string("eventfd failed: ") + std::strerror(errno));
    replies_.resize(size_t(kMostReplies) * room_for(wire::kMostPacketBytes));
    waiting_.reserve(size_t(kMostReplies));
    return {};
}

SwitchServer::~SwitchServer() {
    closing_.store(true);
    if (thread_.joinable()) {
        (void)eventfd_write(wake_, 1);
        thread_.join();
    }
    if (wake_ >= 0)
        close(wake_);
}

void SwitchServer::run() {
    std::vector<pollfd> waits;
    for (const auto& door : doors_) waits.push_back({door->socket.fd(), POLLIN, 0});
    waits.push_back({wake_, POLLIN, 0});
    while (!closing_.load(std::memory_order_relaxed)) {
        bool moved = false;
        for (int i = 0; i < int(doors_.size()); ++i) moved |= serve(i);
        if (!moved)
            (void)poll(waits.data(), waits.size(), -1); // an error (a signal) only makes it look again
        while (visitors_.load(std::memory_order_acquire) > 0 && !closing_.load(std::memory_order_relaxed))
            std::this_thread::yield(); // or they would have no chance against one that takes the lock again at once
    }
}

/// A batch of one socket; false: nothing had come.
bool SwitchServer::serve(int number) {
    Door& door = *doors_[size_t(number)];
    const int n = door.receiver.receive();
    if (n == 0)
        return door.receiver.take_error() != 0; // such as an ICMP error: told once, then there may be packets
    std::lock_guard<std::mutex> lock(mutex_);
    const int64_t now_ns = monotonic_ns();
    for (int i = 0; i < n; ++i) {
        const Datagram& datagram = door.receiver[i];
        const Reply reply =
            pipeline_.process(datagram.from, datagram.data, datagram.bytes, now_ns, place_of(waiting_.size()), number);
        if (reply.bytes > 0)
            waiting_.push_back(reply);
        if (waiting_.size() == size_t(kMostReplies))
            answer();
    }
    answer();
    return true;
}

uint8_t* SwitchServer::place_of(size_t reply) { return &replies_[reply * room_for(wire::kMostPacketBytes)]; }

/// Sends the replies that wait, worker by worker: neighbours of one destination and size share a message.
void SwitchServer::answer() {
    size_t workers = 0;
    for (const Reply& reply : waiting_) workers = std::max(workers, reply.job->workers.size());
    for (size_t w = 0; w < workers; ++w)
        for (size_t i = 0; i < waiting_.size(); ++i) {
            const Reply& reply = waiting_[i];
            if (w >= reply.job->workers.size() || (reply.worker != -1 && size_t(reply.worker) != w))
                continue;
            const Member& worker = reply.job->workers[w];
            DatagramSender& sender = doors_[size_t(worker.door)]->sender;
            if (sender.full())
                flush();
            sender.add(place_of(i), reply.bytes, worker.at);
        }
    flush();
    waiting_.clear();
}

/// All that waits leaves, or is given up as a wire would lose it.
void SwitchServer::flush() {
    for (const auto& door : doors_) {
        DatagramSender& sender = door->sender;
        const uint64_t failed = sender.failed();
        for (int tries = 0; sender.flush() > 0; ++tries) {
            if (tries == kSendTries || closing_.load(std::memory_order_relaxed)) {
                sender.drop();
                break;
            }
            pollfd wait{door->socket.fd(), POLLOUT, 0};
            (void)poll(&wait, 1, 1);
        }
        if (sender.failed() != failed)
            not_sent_.fetch_add(sender.failed() - failed, std::memory_order_relaxed);
    }
}

std::unique_lock<std::mutex> SwitchServer::enter() const {
    visitors_.fetch_add(1, std::memory_order_acq_rel);
    std::unique_lock<std::mutex> lock(mutex_);
    visitors_.fetch_sub(1, std::memory_order_acq_rel);
    return lock;
}

Status SwitchServer::admit(const Admission& admission) {
    const auto lock = enter();
    return pipeline_.admit(admission);
}

bool SwitchServer::release(uint32_t job) {
    const auto lock = enter();
    return pipeline_.release(job);
}

void SwitchServer::look(const std::function<void(const SwitchPipeline&)>& look) const {
    const auto lock = enter();
    look(pipeline_);
}

} // namespace collectives::aggregation
