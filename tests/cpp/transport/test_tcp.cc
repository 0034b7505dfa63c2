// The links between hosts, over loopback: who is let in, what a frame's header may hold, how frames arrive, how a peer's end
// is noticed, and what a withdrawn operation leaves behind.
#include <cstring>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/tcp_mesh.h"

using namespace collectives;

namespace {

/// Takes what comes for one side of a pair.
class Sink final : public FrameSink {
  public:
    Landing land(TcpLink&, const wire::FrameHeader& header) override {
        if (!room)
            return {Landing::later, nullptr};
        data.resize(size_t(header.length) + 1);
        return {Landing::place, data.data()};
    }
    void landed(TcpLink&, const wire::FrameHeader& header, uint8_t* at) override {
        if (at != nullptr)
            arrived.emplace_back(header.slot, std::vector<uint8_t>(data.begin(), data.begin() + long(header.length)));
        else
            ++forgotten;
    }
    bool notice(TcpLink& link, const wire::FrameHeader& header, const uint8_t* payload) override {
        if (header.kind == wire::FrameKind::leaving)
            link.set_left();
        notices.emplace_back(reinterpret_cast<const char*>(payload), header.length);
        return true;
    }
    void lost(TcpLink& link) override { why.push_back(link.why_lost()); }

    bool room = true;
    int forgotten = 0;
    std::vector<uint8_t> data;
    std::vector<std::pair<uint32_t, std::vector<uint8_t>>> arrived;
    std::vector<std::string> notices, why;
};

class Owner final : public FrameOwner {
  public:
    void frame_sent(OutFrame&) override { ++sent; }
    int sent = 0;
};

struct Side {
    Hello hello;
    Sink sink;
    int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    std::unique_ptr<TcpMesh> mesh;

    explicit Side(const std::string& secret = "") {
        REQUIRE(describe_this_process("here", &hello).ok());
        TcpConfig config;
        config.interface = "127.0.0.1";
        config.secret = secret;
        config.wake_fd = wake_fd;
        REQUIRE(TcpMesh::create(config, hello, &mesh).ok());
        mesh->set_sink(&sink);
    }
    ~Side() {
        mesh.reset();
        close(wake_fd);
    }
    TcpPeer as_peer() const { return {hello.uuid, hello.share, "there", 1, mesh->address()}; }
    bool progress() {
        std::lock_guard<std::mutex> lock(mesh->mutex());
        return mesh->progress();
    }
};

int64_t soon() { return monotonic_ns() + 5 * kSecond; }

template <class Done> bool run(Side& a, Side& b, Done done, int64_t ns = 5 * kSecond) {
    for (int64_t end = monotonic_ns() + ns; monotonic_ns() < end;) {
        bool moved = a.progress();
        moved |= b.progress();
        if (done())
            return true;
        if (!moved)
            usleep(200);
    }
    return false;
}

OutFrame frame_of(const std::vector<uint8_t>& payload, Owner& owner, uint32_t slot = 0) {
    OutFrame frame;
    frame.header.kind = wire::FrameKind::data;
    frame.header.slot = slot;
    frame.header.length = payload.size();
    frame.payload = payload.data();
    frame.owner = &owner;
    return frame;
}

std::vector<uint8_t> bytes_of(size_t n, uint8_t seed) {
    std::vector<uint8_t> bytes(n);
    for (size_t i = 0; i < n; ++i) bytes[i] = uint8_t(seed + i * 7 + (i >> 8));
    return bytes;
}

TcpLink& link(Side& from, const Side& to) {
    std::lock_guard<std::mutex> lock(from.mesh->mutex());
    return *from.mesh->link_to(to.as_peer());
}

/// A connection of somebody who knows only the address.
int stranger(const Side& to) {
    Address address;
    REQUIRE(parse_address(to.mesh->address(), &address).ok());
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address.storage), address.length) == 0);
    return fd;
}

/// Whether the other side closes it before long.
bool is_closed(Side& side, int fd) {
    for (int64_t end = monotonic_ns() + 3 * kSecond; monotonic_ns() < end;) {
        side.progress();
        pollfd p{fd, POLLIN, 0};
        char bytes[256];
        if (poll(&p, 1, 5) > 0) {
            ssize_t n = recv(fd, bytes, sizeof bytes, 0);
            if (n <= 0)
                return true;
        }
    }
    return false;
}

} // namespace

TEST_CASE("tcp: frames of every size arrive whole, in order, and their owner is told") {
    Side a, b;
    Owner owner;
    TcpLink& to_b = link(a, b);
    std::vector<std::vector<uint8_t>> payloads;
    std::vector<OutFrame> frames;
    for (size_t n : {size_t(0), size_t(1), size_t(63), size_t(64), size_t(4096), size_t(131072), size_t(5000000)})
        payloads.push_back(bytes_of(n, uint8_t(n)));
    for (uint32_t i = 0; i < payloads.size(); ++i) frames.push_back(frame_of(payloads[i], owner, i));
    {
        std::lock_guard<std::mutex> lock(a.mesh->mutex());
        for (OutFrame& frame : frames) a.mesh->post(to_b, &frame, soon());
    }
    REQUIRE(run(a, b, [&] { return b.sink.arrived.size() == frames.size(); }));
    for (uint32_t i = 0; i < payloads.size(); ++i) {
        CHECK(b.sink.arrived[i].first == i);
        CHECK(b.sink.arrived[i].second == payloads[i]);
    }
    CHECK(owner.sent == int(frames.size()));
    CHECK_FALSE(a.mesh->pending());
}

TEST_CASE("tcp: a frame whose receiver is not ready stays in the socket, and holds up no notice") {
    Side a, b;
    Owner owner;
    TcpLink& to_b = link(a, b);
    b.sink.room = false;
    auto payload = bytes_of(100000, 3);
    OutFrame frame = frame_of(payload, owner);
    wire::FrameHeader notice;
    notice.kind = wire::FrameKind::failed;
    notice.length = 4;
    {
        std::lock_guard<std::mutex> lock(a.mesh->mutex());
        a.mesh->post(to_b, &frame, soon());
        a.mesh->post_notice(to_b, notice, "help", soon());
    }
    REQUIRE(run(a, b, [&] { return !b.sink.notices.empty(); }));
    CHECK(b.sink.notices[0] == "help");
    CHECK(b.sink.arrived.empty());
    b.sink.room = true;
    REQUIRE(run(a, b, [&] { return !b.sink.arrived.empty(); }));
    CHECK(b.sink.arrived[0].second == payload);
}

TEST_CASE("tcp: who does not hold the job's secret is refused, on both sides") {
    Side a("one"), b("another");
    TcpLink& to_b = link(a, b);
    {
        std::lock_guard<std::mutex> lock(a.mesh->mutex());
        a.mesh->want(to_b, soon());
    }
    REQUIRE(run(a, b, [&] { return to_b.lost(); }));
    CHECK(to_b.why_lost().find("does not hold the job's secret") != std::string::npos);
    CHECK(b.sink.arrived.empty());
}

TEST_CASE("tcp: strangers cost their connection and a count, whatever they say") {
    Side a;
    for (const std::string& words :
         {std::string("GET / HTTP/1.1\r\n\r\n") + std::string(200, 'x'), std::string(1000, '\0'),
          std::string("colltcp1") + std::string(56, 'n') + std::string(32, 'm')}) {
        int fd = stranger(a);
        REQUIRE(send(fd, words.data(), words.size(), MSG_NOSIGNAL) == ssize_t(words.size()));
        CHECK(is_closed(a, fd));
        close(fd);
    }
    CHECK(a.mesh->strangers() == 3);
}

TEST_CASE("tcp: a greeting that is played again does not open a connection") {
    // The challenge of the acceptor is new each time, so a proof that was right once is wrong now.
    Side a, b;
    TcpLink& to_b = link(a, b);
    {
        std::lock_guard<std::mutex> lock(a.mesh->mutex());
        a.mesh->want(to_b, soon());
    }
    REQUIRE(run(a, b, [&] { return !a.mesh->pending(); }));
    int fd = stranger(b);
    uint8_t greeting[64] = {'c', 'o', 'l', 'l', 't', 'c', 'p', '1'}, reply[96];
    std::memcpy(greeting + 8, a.hello.uuid.data(), 16);
    REQUIRE(send(fd, greeting, sizeof greeting, MSG_NOSIGNAL) == ssize_t(sizeof greeting));
    REQUIRE(run(a, b, [&] { return recv(fd, reply, sizeof reply, MSG_PEEK | MSG_DONTWAIT) == ssize_t(sizeof reply); }));
    REQUIRE(recv(fd, reply, sizeof reply, 0) == ssize_t(sizeof reply));
    REQUIRE(send(fd, reply + 64, 32, MSG_NOSIGNAL) == 32); // the acceptor's own proof, reflected
    CHECK(is_closed(b, fd));
    close(fd);
    CHECK(b.mesh->strangers() == 1);
    CHECK_FALSE(to_b.lost());
}

TEST_CASE("tcp: the end of a peer is noticed, with whether it said good-bye") {
    for (bool says_goodbye : {false, true}) {
        CAPTURE(says_goodbye);
        Side a;
        auto b = std::make_unique<Side>();
        TcpLink& to_b = link(a, *b);
        TcpLink& to_a = link(*b, a);
        {
            std::lock_guard<std::mutex> lock(a.mesh->mutex());
            a.mesh->want(to_b, soon());
        }
        {
            std::lock_guard<std::mutex> lock(b->mesh->mutex());
            b->mesh->want(to_a, soon());
        }
        REQUIRE(run(a, *b, [&] { return !a.mesh->pending() && !b->mesh->pending(); }));
        if (says_goodbye) {
            std::lock_guard<std::mutex> lock(b->mesh->mutex());
            b->mesh->say_goodbye();
        }
        b.reset();
        int64_t began = monotonic_ns();
        while (!to_b.lost() && monotonic_ns() - began < 3 * kSecond) a.progress();
        CHECK(to_b.lost());
        CHECK(to_b.left() == says_goodbye);
        CHECK(a.sink.why.size() == 1);
        CHECK(monotonic_ns() - began < kSecond);
    }
}

TEST_CASE("tcp: nobody listening is an error at once") {
    Side a;
    TcpPeer gone;
    {
        Side b;
        gone = b.as_peer();
    }
    std::lock_guard<std::mutex> lock(a.mesh->mutex());
    TcpLink& to_b = *a.mesh->link_to(gone);
    a.mesh->want(to_b, soon());
    for (int64_t end = monotonic_ns() + 2 * kSecond; !to_b.lost() && monotonic_ns() < end;) a.mesh->progress();
    CHECK(to_b.lost());
    CHECK(to_b.why_lost().find("refused") != std::string::npos);
}

TEST_CASE("tcp: a withdrawn operation leaves nothing that refers to its memory, and the stream in step") {
    Side a, b;
    Owner gone, stays;
    TcpLink& to_b = link(a, b);
    b.sink.room = false; // so that the first frame fills the sockets and is half sent
    {
        auto payload = std::make_unique<std::vector<uint8_t>>(bytes_of(32 << 20, 9));
        auto second = std::make_unique<std::vector<uint8_t>>(bytes_of(100, 10));
        OutFrame half = frame_of(*payload, gone, 1), whole = frame_of(*second, gone, 2);
        {
            std::lock_guard<std::mutex> lock(a.mesh->mutex());
            a.mesh->post(to_b, &half, soon());
            a.mesh->post(to_b, &whole, soon());
        }
        REQUIRE_FALSE(run(a, b, [&] { return gone.sent > 0; }, 200 * kMillisecond));
        std::lock_guard<std::mutex> lock(a.mesh->mutex());
        a.mesh->withdraw(to_b, &gone);
    } // payloads and frames are gone
    auto payload = bytes_of(1000, 11);
    OutFrame frame = frame_of(payload, stays, 3);
    {
        std::lock_guard<std::mutex> lock(a.mesh->mutex());
        a.mesh->post(to_b, &frame, soon());
    }
    b.sink.room = true;
    REQUIRE(run(a, b, [&] { return b.sink.arrived.size() == 2; }));
    CHECK(b.sink.arrived[0].second == bytes_of(32 << 20, 9));
    CHECK(b.sink.arrived[1].first == 3);
    CHECK(b.sink.arrived[1].second == payload);
    CHECK(gone.sent == 0);
    CHECK(stays.sent == 1);
}

TEST_CASE("tcp: a place that is forgotten while bytes arrive is not written any more") {
    Side a, b;
    Owner owner;
    TcpLink& to_b = link(a, b);
    auto payload = bytes_of(64 << 20, 1);
    OutFrame frame = frame_of(payload, owner);
    {
        std::lock_guard<std::mutex> lock(a.mesh->mutex());
        a.mesh->post(to_b, &frame, soon());
    }
    REQUIRE(run(a, b, [&] { return !b.sink.data.empty(); }));
    {
        std::lock_guard<std::mutex> lock(b.mesh->mutex());
        b.mesh->forget_place(b.sink.data.data(), b.sink.data.data() + b.sink.data.size());
    }
    std::vector<uint8_t>().swap(b.sink.data); // a write would be seen by a sanitizer
    REQUIRE(run(a, b, [&] { return b.sink.forgotten == 1; }));
    CHECK(owner.sent == 1);
}

TEST_CASE("frames: a header is checked before its length is believed") {
    wire::FrameHeader good;
    good.kind = wire::FrameKind::data;
    CHECK(wire::check_frame(good) == nullptr);
    auto bad = [&](auto change) {
        wire::FrameHeader header = good;
        change(header);
        return wire::check_frame(header) != nullptr;
    };
    CHECK(bad([](auto& h) { h.magic ^= 1; }));
    CHECK(bad([](auto& h) { ++h.version; }));
    CHECK(bad([](auto& h) { h.kind = wire::FrameKind::none; }));
    CHECK(bad([](auto& h) { h.kind = wire::FrameKind(200); }));
    CHECK(bad([](auto& h) { h.reserved = 1; }));
    CHECK(bad([](auto& h) { h.length = ~uint64_t(0); }));
    CHECK(bad([](auto& h) {
        h.kind = wire::FrameKind::closed;
        h.length = 1;
    }));
}
