// Datagram sockets over loopback: batches in both families, coalesced and not, what is too long, and what is refused.
#include <cerrno>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <poll.h>

#include "base/datagrams.h"

using namespace collectives;

namespace {

IpPort at(const std::string& host) {
    IpPort place;
    REQUIRE(parse_ip_port(host, 0, &place).ok());
    return place;
}

DatagramSocket open_at(const std::string& host, bool offload) {
    DatagramSocket socket;
    DatagramOptions options;
    options.offload = offload;
    REQUIRE(DatagramSocket::open(at(host), options, &socket).ok());
    return socket;
}

bool has_ipv6() {
    DatagramSocket socket;
    return DatagramSocket::open(at("::1"), {}, &socket).ok();
}

/// Loopback delivers before sendmmsg returns; poll() only guards against one that does not.
int receive_now(const DatagramSocket& socket, DatagramReceiver& receiver) {
    pollfd readable{socket.fd(), POLLIN, 0};
    poll(&readable, 1, 1000);
    return receiver.receive();
}

std::vector<uint8_t> bytes_of(size_t n, int seed) {
    std::vector<uint8_t> bytes(n);
    std::iota(bytes.begin(), bytes.end(), uint8_t(seed));
    return bytes;
}

} // namespace

TEST_CASE("ip_port: text and numbers") {
    IpPort place;
    REQUIRE(parse_ip_port("10.1.2.3", 5190, &place).ok());
    CHECK(place == ipv4_port(10, 1, 2, 3, 5190));
    CHECK(place.text() == "10.1.2.3:5190");
    REQUIRE(parse_ip_port("fd00::1", 7, &place).ok());
    CHECK(place.text() == "[fd00::1]:7");
    CHECK_FALSE(place.is_ipv4());
    sockaddr_storage name{};
    to_sockaddr(place, &name);
    CHECK(from_sockaddr(reinterpret_cast<sockaddr*>(&name)) == place);
    for (const char* wrong : {"", "host", "10.0.0", "10.0.0.256", "fe80::1", "1::2::3"})
        CHECK(parse_ip_port(wrong, 1, &place).code() == Code::invalid_argument);
    CHECK(parse_ip_port("10.0.0.1", 65536, &place).code() == Code::invalid_argument);
    CHECK(parse_ip_port("10.0.0.1", -1, &place).code() == Code::invalid_argument);
}

TEST_CASE("datagrams: batches arrive whole, in order, with where they came from") {
    for (const char* host : {"127.0.0.1", "::1"})
        for (bool offload : {false, true}) {
            if (std::string(host) == "::1" && !has_ipv6()) {
                MESSAGE("no IPv6 loopback here: not tried");
                continue;
            }
            CAPTURE(host);
            CAPTURE(offload);
            DatagramSocket server = open_at(host, offload), client = open_at(host, offload);
            CHECK(server.coalesces() == server.segments()); // kernels have both or neither
            DatagramReceiver in(server, 32, 2000);
            DatagramSender out(client, 40);
            std::vector<std::vector<uint8_t>> sent;
            for (int i = 0; i < 30; ++i) // a run of one size, a shorter one, an empty one, sizes that change
                sent.push_back(bytes_of(i < 12 ? 1000 : i == 12 ? 400 : i == 13 ? 0 : 500 + 100 * size_t(i % 3), i));
            for (const auto& each : sent) out.add(each.data(), each.size(), server.address());
            CHECK(out.flush() == 0);
            CHECK(out.sent() == sent.size());
            size_t next = 0;
            for (int round = 0; round < 40 && next < sent.size(); ++round) {
                const int n = receive_now(server, in);
                for (int i = 0; i < n; ++i, ++next) {
                    REQUIRE(next < sent.size());
                    CHECK(std::vector<uint8_t>(in[i].data, in[i].data + in[i].bytes) == sent[next]);
                    CHECK(in[i].from == client.address());
                }
            }
            CHECK(next == sent.size());
            if (offload && client.segments())
                CHECK(out.calls() == 1);
        }
}

TEST_CASE("datagrams: one that is too long to be good is told from one that is not") {
    for (bool offload : {false, true}) {
        DatagramSocket server = open_at("127.0.0.1", offload), client = open_at("127.0.0.1", offload);
        DatagramReceiver in(server, 8, 100);
        DatagramSender out(client, 8);
        const auto bytes = bytes_of(3000, 1);
        for (size_t n : {100, 101, 3000, 99}) out.add(bytes.data(), n, server.address());
        REQUIRE(out.flush() == 0);
        std::vector<size_t> sizes;
        while (sizes.size() < 4) {
            const int n = receive_now(server, in);
            REQUIRE(n > 0);
            for (int i = 0; i < n; ++i) sizes.push_back(in[i].bytes);
        }
        CHECK(sizes == std::vector<size_t>{100, 101, 101, 99});
    }
}

TEST_CASE("datagrams: a connected socket hears one peer only, and that it has gone") {
    DatagramSocket client = open_at("127.0.0.1", true), stranger = open_at("127.0.0.1", true);
    DatagramSocket server = open_at("127.0.0.1", true);
    REQUIRE(client.connect(server.address()).ok());
    DatagramReceiver in(client, 4, 100);
    DatagramSender from_stranger(stranger, 4), from_server(server, 4), out(client, 4);
    const auto bytes = bytes_of(10, 3);
    from_stranger.add(bytes.data(), 5, client.address());
    from_server.add(bytes.data(), 10, client.address());
    CHECK(from_stranger.flush() == 0);
    CHECK(from_server.flush() == 0);
    REQUIRE(receive_now(client, in) == 1);
    CHECK(in[0].bytes == 10);
    CHECK(in.receive() == 0);
    CHECK(in.take_error() == 0);
    server = DatagramSocket();
    out.add(bytes.data(), 10);
    CHECK(out.flush() == 0);
    CHECK(in.receive() == 0);
    CHECK(in.take_error() == ECONNREFUSED);
    CHECK(in.take_error() == 0);
}

TEST_CASE("datagrams: what the system refuses is counted, and the rest goes on") {
    DatagramSocket server = open_at("127.0.0.1", true), client = open_at("127.0.0.1", true);
    DatagramReceiver in(server, 4, 100);
    DatagramSender out(client, 4);
    const std::vector<uint8_t> much(70000);
    out.add(much.data(), much.size(), server.address());
    out.add(much.data(), 10, server.address());
    CHECK(out.flush() == 0);
    CHECK(out.sent() == 1);
    CHECK(out.failed() == 1);
    CHECK(out.take_error() == EMSGSIZE);
    CHECK(receive_now(server, in) == 1);
    out.add(much.data(), 10, server.address());
    out.drop();
    CHECK(out.failed() == 2);
    CHECK(out.waiting() == 0);
}

TEST_CASE("datagrams: addresses that are taken, not of this host, or of all interfaces are refused with the reason") {
    DatagramSocket one = open_at("127.0.0.1", true), other;
    CHECK(one.send_buffer_bytes() > 0);
    CHECK(one.receive_buffer_bytes() > 0);
    CHECK(one.address().port != 0);
    const Status taken = DatagramSocket::open(one.address(), {}, &other);
    CHECK(taken.message().find(one.address().text()) != std::string::npos);
    CHECK(DatagramSocket::open(ipv4_port(192, 0, 2, 1, 0), {}, &other).code() == Code::internal);
    CHECK(DatagramSocket::open(ipv4_port(0, 0, 0, 0, 0), {}, &other).code() == Code::invalid_argument);
    CHECK(DatagramSocket::open(at("::"), {}, &other).code() == Code::invalid_argument);
    CHECK(other.fd() == -1);
}
