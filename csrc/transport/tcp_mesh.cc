// Connections, links and readiness. See tcp_mesh.h.
#include "transport/tcp_mesh.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

namespace collectives {
namespace {

constexpr int64_t kHandshakeNs = 5 * kSecond;   // patience with a side that connected, and with one that listens
constexpr int64_t kRetryNs = 20 * kMillisecond; // between two tries to connect
constexpr int64_t kSweepNs = 5 * kMillisecond;
constexpr size_t kMostStrangers = 256;  // handshakes under way
constexpr int64_t kReadBytes = 4 << 20; // of one connection before the others have their turn
constexpr int kEvents = 64;

} // namespace

Status TcpMesh::create(const TcpConfig& config, const Hello& own, std::unique_ptr<TcpMesh>* out) {
    std::unique_ptr<TcpMesh> mesh(new TcpMesh());
    mesh->config_ = config;
    mesh->own_ = own;
    Choice choice;
    COLLECTIVES_RETURN_IF_ERROR(choose_address(config.interface, config.towards, &choice));
    Address bound;
    COLLECTIVES_RETURN_IF_ERROR(listen_on(choice.address, &mesh->listener_, &bound));
    mesh->address_ = bound.text();
    mesh->why_ = choice.why;
    mesh->loopback_ = bound.loopback();
    mesh->epoll_ = epoll_create1(EPOLL_CLOEXEC);
    epoll_event listener{EPOLLIN | EPOLLET, {.ptr = &mesh->listener_}};
    if (mesh->epoll_ < 0 || epoll_ctl(mesh->epoll_, EPOLL_CTL_ADD, mesh->listener_, &listener) != 0)
        return Status(Code::internal, std::string("cannot watch TCP sockets: ") + std::strerror(errno));
    *out = std::move(mesh);
    return {};
}

TcpMesh::~TcpMesh() {
    for (auto& [uuid, link] : links_)
        for (OutFrame* frame : link->waiting_)
            if (frame->owner == nullptr)
                pool_.give(frame);
    links_.clear();
    accepted_.clear();
    close_descriptors();
}

void TcpMesh::close_descriptors() {
    for (int* fd : {&listener_, &epoll_}) {
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
    }
    for (auto& [uuid, link] : links_)
        for (auto& connection : link->out_)
            if (connection != nullptr && connection->fd() >= 0)
                close(connection->fd());
    for (auto& connection : accepted_)
        if (connection->fd() >= 0)
            close(connection->fd());
}

// ---- links ----

TcpLink* TcpMesh::find(const Uuid& uuid) {
    auto it = links_.find(uuid);
    return it == links_.end() ? nullptr : it->second.get();
}

TcpLink* TcpMesh::link_to(const TcpPeer& peer) {
    TcpLink* link = find(peer.uuid);
    if (link == nullptr) {
        link = (links_[peer.uuid] = std::make_unique<TcpLink>()).get();
        link->out_.resize(size_t(1 + config_.streams));
    }
    if (link->peer_.address.empty())
        link->peer_ = peer;
    return link;
}

TcpLink* TcpMesh::link_of(const TcpConnection& connection) {
    if (!connection.acceptor()) {
        auto it = outgoing_.find(const_cast<TcpConnection*>(&connection));
        return it == outgoing_.end() ? nullptr : it->second;
    }
    return connection.stage() == TcpConnection::Stage::open ? find(connection.peer()) : nullptr;
}

TcpConnection* TcpMesh::connect(TcpLink& link, int lane) {
    auto& place = link.out_[size_t(lane)];
    if (place != nullptr || link.lost() || link.peer_.address.empty())
        return place.get();
    int64_t now = monotonic_ns();
    if (now < link.retry_ns_)
        return nullptr;
    link.retry_ns_ = now + kRetryNs;
    Address to;
    Status parsed = parse_address(link.peer_.address, &to);
    int fd = parsed.ok() ? begin_connect(to) : -1;
    if (fd < 0) {
        const int error = errno;
        link.last_error_ = parsed.ok() ? socket_error(error) : parsed.message();
        if (!parsed.ok() || error == ECONNREFUSED)
            lose(link, link.last_error_);
        return nullptr;
    }
    place = std::make_unique<TcpConnection>(fd, false, lane, own_.uuid, config_.secret + link.peer_.share,
                                            now + kHandshakeNs, &pool_);
    place->writable = place->readable = false; // until epoll says so
    outgoing_[place.get()] = &link;
    link.retry_ns_ = 0;
    watch(*place);
    return place.get();
}

void TcpMesh::want(TcpLink& link, int64_t deadline_ns) {
    if (link.lost() || link.out_[TcpLink::kControlLane] != nullptr)
        return;
    link.give_up_ns_ = std::max(link.give_up_ns_, deadline_ns);
    pending_.store(true, std::memory_order_release);
    (void)connect(link, TcpLink::kControlLane);
}

void TcpMesh::post(TcpLink& link, OutFrame* frame, int64_t deadline_ns) {
    int lane = TcpLink::kControlLane;
    if (frame->header.kind == wire::FrameKind::data) {
        int64_t least = -1;
        for (int l = 1; l <= config_.streams; ++l) {
            int64_t queued = link.out_[size_t(l)] != nullptr ? link.out_[size_t(l)]->queued_bytes() : 0;
            if (least < 0 || queued < least) {
                least = queued;
                lane = l;
            }
        }
    }
    if (link.lost()) {
        if (frame->owner == nullptr)
            pool_.give(frame);
        return;
    }
    link.give_up_ns_ = std::max(link.give_up_ns_, deadline_ns);
    TcpConnection* connection = connect(link, lane);
    if (connection == nullptr) {
        if (link.lost()) {
            if (frame->owner == nullptr)
                pool_.give(frame);
            return;
        }
        link.waiting_.push_back(frame);
        link.waiting_lanes_.push_back(lane);
        pending_.store(true, std::memory_order_release);
        return;
    }
    connection->push(frame);
    pending_.store(true, std::memory_order_release); // until progress() says otherwise
    if (connection->stage() == TcpConnection::Stage::open) {
        connection->flush();
        if (connection->stage() == TcpConnection::Stage::dead)
            look(connection);
    }
}

void TcpMesh::send_waiting(TcpLink& link) {
    std::vector<OutFrame*> frames;
    std::vector<int> lanes;
    frames.swap(link.waiting_);
    lanes.swap(link.waiting_lanes_);
    for (size_t i = 0; i < frames.size(); ++i) {
        TcpConnection* connection = connect(link, lanes[i]);
        if (connection != nullptr) {
            connection->push(frames[i]);
            continue;
        }
        link.waiting_.push_back(frames[i]);
        link.waiting_lanes_.push_back(lanes[i]);
    }
}

void TcpMesh::post_notice(TcpLink& link, const wire::FrameHeader& header, const void* payload, int64_t deadline_ns) {
    OutFrame* frame = pool_.take(size_t(header.length));
    frame->header = header;
    if (header.length > 0)
        std::memcpy(frame->own_payload.data(), payload, size_t(header.length));
    post(link, frame, deadline_ns);
}

void TcpMesh::withdraw(TcpLink& link, const FrameOwner* owner) {
    for (auto& connection : link.out_)
        if (connection != nullptr)
            connection->withdraw(owner);
    for (size_t i = link.waiting_.size(); i-- > 0;)
        if (link.waiting_[i]->owner == owner) {
            link.waiting_.erase(link.waiting_.begin() + long(i));
            link.waiting_lanes_.erase(link.waiting_lanes_.begin() + long(i));
        }
}

void TcpMesh::forget_place(const uint8_t* begin, const uint8_t* end) {
    for (auto& connection : accepted_) connection->forget_place(begin, end);
}

void TcpMesh::lose(TcpLink& link, const std::string& why) {
    if (link.lost())
        return;
    link.why_ = why;
    link.lost_.store(true, std::memory_order_release);
    for (auto& connection : link.out_)
        if (connection != nullptr) {
            connection->kill(why);
            look(connection.get());
        }
    for (TcpConnection* connection : link.in_) {
        connection->kill(why);
        look(connection);
    }
    for (OutFrame* frame : link.waiting_)
        if (frame->owner == nullptr)
            pool_.give(frame);
    link.waiting_.clear();
    link.waiting_lanes_.clear();
    if (sink_ != nullptr)
        sink_->lost(link);
}

// ---- connections ----

void TcpMesh::watch(TcpConnection& connection) {
    epoll_event event{EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.ptr = &connection}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.fd(), &event) != 0)
        connection.kill(std::strerror(errno));
    look(&connection);
}

/// Puts a connection on the list of those that the next pass looks at.
void TcpMesh::look(TcpConnection* connection) {
    if (connection->listed)
        return;
    connection->listed = true;
    work_.push_back(connection);
}

void TcpMesh::accept_all() {
    while (listener_ready_) {
        int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            listener_ready_ = errno == EINTR || errno == ECONNABORTED;
            if (errno == EMFILE || errno == ENFILE)
                std::fprintf(stderr, "collectives: cannot accept a connection: %s\n", socket_error(errno).c_str());
            continue;
        }
        size_t shaking = 0;
        for (auto& each : accepted_) shaking += each->stage() != TcpConnection::Stage::open;
        if (shaking >= kMostStrangers) { // so many that never end their handshake: the oldest is the least likely to
            for (auto& each : accepted_)
                if (each->stage() != TcpConnection::Stage::open && each->stage() != TcpConnection::Stage::dead) {
                    each->kill("handshake: too many others are under way");
                    look(each.get());
                    break;
                }
        }
        set_options(fd);
        accepted_.push_back(std::make_unique<TcpConnection>(fd, true, 0, own_.uuid, config_.secret + own_.share,
                                                            monotonic_ns() + kHandshakeNs, &pool_));
        watch(*accepted_.back());
    }
}

/// A stranger costs its connection, a count, and now and then a line.
void TcpMesh::refuse(const TcpConnection& connection) {
    int64_t n = strangers_.fetch_add(1) + 1;
    if ((n & (n - 1)) == 0)
        std::fprintf(stderr, "collectives: refused %lld connection%s so far, the last one: %s\n",
                     static_cast<long long>(n), n == 1 ? "" : "s", connection.why_dead().c_str());
}

void TcpMesh::opened(TcpConnection& connection) {
    if (!connection.acceptor())
        return;
    TcpPeer stub;
    stub.uuid = connection.peer();
    link_to(stub)->in_.push_back(&connection); // its group may not have formed here yet
}

bool TcpMesh::serve(TcpConnection& connection) {
    using Stage = TcpConnection::Stage;
    bool moved = false;
    Stage before = connection.stage();
    if (before != Stage::open && before != Stage::dead) {
        moved = connection.shake_hands();
        if (connection.stage() == Stage::open)
            opened(connection);
    }
    if (connection.stage() != Stage::open)
        return moved;
    TcpLink* link = link_of(connection);
    if (link == nullptr || link->lost())
        return moved;
    if (connection.acceptor())
        moved |= connection.receive(*link, *sink_, kReadBytes);
    else if (connection.readable) { // nothing comes this way but its end
        char byte;
        ssize_t n = recv(connection.fd(), &byte, 1, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            connection.readable = false;
        else
            connection.kill(n == 0  ? "the connection was closed"
                            : n > 0 ? "it sent bytes on a connection that takes none"
                                    : std::strerror(errno));
    }
    if (connection.has_output())
        moved |= connection.flush();
    return moved;
}

/// A dead connection: of a stranger, of a try to connect that may be repeated, or of a peer that is gone.
void TcpMesh::failed(TcpConnection& connection) {
    std::string why = connection.why_dead();
    if (connection.acceptor()) {
        TcpLink* link = nullptr;
        for (auto& [uuid, each] : links_)
            if (auto at = std::find(each->in_.begin(), each->in_.end(), &connection); at != each->in_.end()) {
                each->in_.erase(at);
                link = each.get();
            }
        if (link == nullptr && why != "closed")
            refuse(connection);
        if (link != nullptr &&
            (!link->left() || link->in_.empty())) // else what it sent on the others is still to be read
            lose(*link, why);
        auto at =
            std::find_if(accepted_.begin(), accepted_.end(), [&](auto& each) { return each.get() == &connection; });
        graveyard_.push_back(std::move(*at));
        accepted_.erase(at);
        return;
    }
    TcpLink* link = link_of(connection);
    outgoing_.erase(&connection);
    auto& place = link->out_[size_t(connection.lane())];
    bool was_open = connection.peer() != Uuid{};
    graveyard_.push_back(std::move(place));
    bool refused = why.find("refused") != std::string::npos || why.find("secret") != std::string::npos;
    link->last_error_ = why;
    if (link->left() && !link->in_.empty())
        return; // likewise
    if (was_open || refused)
        lose(*link, why);
    else
        link->retry_ns_ = monotonic_ns() + kRetryNs; // sweep() tries again, until the deadline
}

// ---- readiness ----

void TcpMesh::collect() {
    epoll_event events[kEvents];
    int n = epoll_wait(epoll_, events, kEvents, 0);
    if (n <= 0)
        return;
    for (int i = 0; i < n; ++i) {
        if (events[i].data.ptr == &listener_) {
            listener_ready_ = true;
        } else {
            auto* connection = static_cast<TcpConnection*>(events[i].data.ptr);
            connection->ending |= (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
            connection->readable |= (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
            connection->writable |= (events[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
            look(connection);
        }
    }
}

bool TcpMesh::progress() {
    collect();
    bool moved = false;
    if (listener_ready_)
        accept_all();
    working_.swap(work_);
    for (TcpConnection* connection : working_) {
        connection->listed = false;
        moved |= serve(*connection);
        bool more = connection->stage() == TcpConnection::Stage::open &&
                    (connection->stalled || (connection->acceptor() && connection->readable));
        if (more || connection->stage() == TcpConnection::Stage::dead)
            look(connection);
    }
    working_.clear();
    for (size_t i = 0; i < work_.size();) {
        if (work_[i]->stage() != TcpConnection::Stage::dead) {
            ++i;
            continue;
        }
        TcpConnection* dead = work_[i];
        work_.erase(work_.begin() + long(i));
        failed(*dead);
        moved = true;
    }
    graveyard_.clear();
    if (int64_t now = monotonic_ns(); now - swept_ns_ >= kSweepNs) {
        swept_ns_ = now;
        sweep(now);
    }
    if (pending_.load(std::memory_order_relaxed))
        pending_.store(has_output(), std::memory_order_release);
    return moved;
}

/// Handshakes that take too long, and connections that have to be tried again.
void TcpMesh::sweep(int64_t now_ns) {
    auto late = [&](TcpConnection& connection) {
        auto stage = connection.stage();
        if (stage != TcpConnection::Stage::open && stage != TcpConnection::Stage::dead &&
            now_ns >= connection.deadline_ns()) {
            connection.kill("handshake: no answer in 5 s");
            look(&connection);
        }
    };
    for (auto& connection : accepted_) late(*connection);
    std::vector<TcpLink*> gone;
    for (auto& [uuid, link] : links_) {
        for (auto& connection : link->out_)
            if (connection != nullptr)
                late(*connection);
        if (link->lost() || link->left() || link->last_error_.empty())
            continue;
        bool connecting = link->out_[TcpLink::kControlLane] == nullptr || !link->waiting_.empty();
        if (connecting && now_ns >= link->give_up_ns_)
            gone.push_back(link.get());
        else if (connecting && now_ns >= link->retry_ns_) {
            (void)connect(*link, TcpLink::kControlLane);
            send_waiting(*link);
        }
    }
    for (TcpLink* link : gone) lose(*link, "cannot connect to " + link->peer_.address + ": " + link->last_error_);
}

bool TcpMesh::has_output() const {
    for (auto& [connection, link] : outgoing_)
        if (connection->has_output() || connection->stage() != TcpConnection::Stage::open)
            return true;
    return std::any_of(links_.begin(), links_.end(), [](auto& each) { return !each.second->waiting_.empty(); });
}

void TcpMesh::say_goodbye() {
    wire::FrameHeader header;
    header.kind = wire::FrameKind::leaving;
    for (auto& [uuid, link] : links_) {
        for (auto& connection : link->out_) { // of each, so that none ends without
            if (connection == nullptr || connection->stage() != TcpConnection::Stage::open)
                continue;
            OutFrame* frame = pool_.take(0);
            frame->header = header;
            connection->push(frame);
            connection->flush();
        }
    }
}

void TcpMesh::sleep(int64_t ns) {
    // An epoll can be polled, by many at once, and nothing is taken out of it. The bell is no part of it: a thread that is
    // awake and takes events would take the ring that is meant for one that sleeps.
    pollfd ready[2] = {{epoll_, POLLIN, 0}, {config_.wake_fd, POLLIN, 0}};
    timespec time{ns / kSecond, long(ns % kSecond)};
    if (ppoll(ready, 2, &time, nullptr) <= 0 || ready[1].revents == 0)
        return;
    uint64_t count;
    if (read(config_.wake_fd, &count, sizeof count) < 0)
        return; // another sleeper was faster
}

} // namespace collectives
