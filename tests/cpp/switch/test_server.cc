// The switch on real sockets of loopback: sums, wrong and random bytes, a thread that looks on meanwhile, and the end.
#include <random>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <poll.h>

#include "base/clock.h"
#include "switch/server.h"

using namespace collectives;
using namespace collectives::aggregation;

namespace {

constexpr int kWorkers = 3, kLanes = 16;

/// Sockets of the workers of job 1, connected to a switch that has admitted them.
struct Rig {
    std::unique_ptr<SwitchServer> server;
    std::vector<DatagramSocket> sockets{size_t(kWorkers)};

    Rig() {
        REQUIRE(SwitchServer::start({ipv4_port(127, 0, 0, 1, 0)}, {}, &server).ok());
        Admission admission{1, 1, {}, 4, kLanes};
        for (DatagramSocket& socket : sockets) {
            REQUIRE(DatagramSocket::open(ipv4_port(127, 0, 0, 1, 0), {}, &socket).ok());
            REQUIRE(socket.connect(server->addresses()[0]).ok());
            admission.workers.push_back(socket.address());
        }
        REQUIRE(server->admit(admission).ok());
    }

    void send(int w, const std::vector<uint8_t>& bytes) {
        DatagramSender sender(sockets[size_t(w)], 1);
        sender.add(bytes.data(), bytes.size());
        CHECK(sender.flush() == 0);
    }

    std::vector<uint8_t> receive(int w) {
        DatagramReceiver receiver(sockets[size_t(w)], 1, wire::kMostPacketBytes);
        const int64_t end_ns = monotonic_ns() + 10 * kSecond;
        while (monotonic_ns() < end_ns) {
            if (receiver.receive() > 0)
                return {receiver[0].data, receiver[0].data + receiver[0].bytes};
            pollfd wait{sockets[size_t(w)].fd(), POLLIN, 0};
            (void)poll(&wait, 1, 100);
        }
        return {};
    }

    uint64_t counter(Verdict verdict) const {
        uint64_t found = 0;
        server->look([&](const SwitchPipeline& pipeline) { found = pipeline.counter(verdict); });
        return found;
    }
};

std::vector<uint8_t> update(uint32_t epoch, int32_t value) {
    wire::PacketHeader h;
    h.magic = wire::kPacketMagic;
    h.version = wire::kPacketVersion;
    h.kind = uint8_t(wire::PacketKind::update);
    h.lanes = kLanes;
    h.lane_bits = 32;
    h.job = h.incarnation = 1;
    h.epoch = epoch;
    h.chunk_id = epoch;
    std::vector<uint8_t> bytes(wire::kPacketHeaderBytes + h.payload_bytes());
    wire::encode_packet(h, bytes.data());
    for (size_t i = 0; i < kLanes; ++i)
        wire::packet_detail::store<int32_t>(&bytes[wire::kPacketHeaderBytes + 4 * i], value + int32_t(i));
    return bytes;
}

} // namespace

TEST_CASE("switch server: sums go to all workers, while fuzzed packets come and another thread looks on") {
    Rig rig;
    std::atomic<bool> done{false};
    std::thread looks([&] {
        while (!done) {
            (void)rig.counter(Verdict::added);
            (void)rig.server->release(99);
        }
    });
    std::mt19937_64 random(7);
    uint64_t fuzzed = 0;
    for (uint32_t epoch = 1; epoch <= 50; ++epoch) {
        for (int w = 0; w < kWorkers; ++w) {
            std::vector<uint8_t> wrong = update(epoch, 9);
            wrong[random() % 3] ^= uint8_t(1 + random() % 255); // magic or version
            wrong.resize(1 + random() % wrong.size());
            rig.send(w, wrong);
            ++fuzzed;
            rig.send(w, update(epoch, w));
        }
        for (int w = 0; w < kWorkers; ++w) {
            const std::vector<uint8_t> result = rig.receive(w);
            REQUIRE(result.size() == wire::kPacketHeaderBytes + 4 * kLanes);
            CHECK(wire::decode_packet(result.data()).epoch == epoch);
            for (size_t i = 0; i < kLanes; ++i)
                CHECK(wire::packet_detail::load<int32_t>(&result[wire::kPacketHeaderBytes + 4 * i]) ==
                      3 + kWorkers * int32_t(i));
        }
    }
    done = true;
    looks.join();
    CHECK(rig.counter(Verdict::completed) == 50);
    CHECK(rig.counter(Verdict::added) == 100);
    CHECK(rig.counter(Verdict::malformed) == fuzzed);
    CHECK(rig.server->not_sent() == 0);
}

TEST_CASE("switch server: it ends although packets keep coming, and what cannot be bound says so") {
    Rig rig;
    std::atomic<bool> done{false};
    std::thread floods([&] {
        while (!done) rig.send(0, update(1, 1));
    });
    while (rig.counter(Verdict::duplicate) == 0) std::this_thread::yield();
    const int64_t began_ns = monotonic_ns();
    rig.server.reset();
    CHECK(monotonic_ns() - began_ns < 5 * kSecond);
    done = true;
    floods.join();
    std::unique_ptr<SwitchServer> none;
    CHECK(SwitchServer::start({}, {}, &none).code() == Code::invalid_argument);
    CHECK(SwitchServer::start({ipv4_port(192, 0, 2, 1, 0)}, {}, &none).code() == Code::internal);
    CHECK(none == nullptr);
}
