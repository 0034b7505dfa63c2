// The software switch on one core against a bare echo of the same packets, in turn, over loopback. Run by hand; no test.
//   g++ -std=c++20 -O3 -Icsrc tests/cpp/switch/bench_server.cc <collectives_switch, _wire, _base> -pthread
//   bench_server [rounds]
// Four workers are one thread on core 0, the switch (or the echo) is another on core 1. Both answer each packet with one of the
// same size. Printed for each size: packets a second by the clock, and by the processor time of the answering thread alone
// (what one core could do if the workers were elsewhere); medians, and the switch over the echo. Needed: 0.5.
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "switch/server.h"

using namespace collectives;
using namespace collectives::aggregation;

namespace {

constexpr int kWorkers = 4, kBatch = 64;

void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0)
        std::printf("not pinned to core %d\n", core);
}

int64_t cpu_ns(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return int64_t(t.tv_sec) * kSecond + t.tv_nsec;
}

[[noreturn]] void give_up(const char* why) {
    std::printf("%s\n", why);
    std::exit(1);
}

/// Sends everything back; no more than that.
class Echo {
  public:
    Echo() {
        if (!DatagramSocket::open(ipv4_port(127, 0, 0, 1, 0), {}, &socket_).ok())
            give_up("cannot bind");
        thread_ = std::thread([this] { run(); });
    }
    ~Echo() {
        closing_ = true;
        thread_.join();
    }
    const IpPort& address() const { return socket_.address(); }

  private:
    void run() {
        DatagramReceiver receiver(socket_, kBatch, wire::kMostPacketBytes);
        DatagramSender sender(socket_, kBatch * 64);
        while (!closing_) {
            const int n = receiver.receive();
            pollfd wait{socket_.fd(), POLLIN, 0};
            if (n == 0)
                (void)poll(&wait, 1, 100);
            for (int i = 0; i < n; ++i) sender.add(receiver[i].data, receiver[i].bytes, receiver[i].from);
            while (sender.flush() > 0) {
            }
        }
    }
    DatagramSocket socket_;
    std::atomic<bool> closing_{false};
    std::thread thread_;
};

struct Workers {
    std::vector<DatagramSocket> sockets{size_t(kWorkers)};
    std::vector<std::unique_ptr<DatagramSender>> senders;
    std::vector<std::unique_ptr<DatagramReceiver>> receivers;
    std::vector<uint8_t> packets; // of one epoch, by worker and slot
    size_t bytes;
    int slots;

    Workers(int lanes, int n_slots) : bytes(wire::kPacketHeaderBytes + 4 * size_t(lanes)), slots(n_slots) {
        packets.resize(size_t(kWorkers * slots) * bytes);
        for (DatagramSocket& socket : sockets)
            if (!DatagramSocket::open(ipv4_port(127, 0, 0, 1, 0), {}, &socket).ok())
                give_up("cannot bind");
    }
    void connect(const IpPort& to) {
        for (DatagramSocket& socket : sockets) {
            if (!socket.connect(to).ok())
                give_up("cannot connect");
            senders.push_back(std::make_unique<DatagramSender>(socket, slots));
            receivers.push_back(std::make_unique<DatagramReceiver>(socket, kBatch, wire::kMostPacketBytes));
        }
    }
    void prepare(uint32_t epoch, const wire::Tagger* tagger) {
        for (int w = 0; w < kWorkers; ++w)
            for (int s = 0; s < slots; ++s) {
                uint8_t* packet = &packets[size_t(w * slots + s) * bytes];
                wire::PacketHeader h;
                h.magic = wire::kPacketMagic;
                h.version = wire::kPacketVersion;
                h.kind = uint8_t(wire::PacketKind::update);
                h.lanes = uint16_t((bytes - wire::kPacketHeaderBytes) / 4);
                h.lane_bits = 32;
                h.job = h.incarnation = 1;
                h.slot = uint32_t(s);
                h.epoch = epoch;
                h.chunk_id = epoch;
                wire::encode_packet(h, packet);
                if (tagger != nullptr)
                    tagger->sign(packet, bytes);
            }
    }
    /// Sends an epoch, and takes all answers.
    void exchange() {
        for (int w = 0; w < kWorkers; ++w) {
            for (int s = 0; s < slots; ++s) senders[size_t(w)]->add(&packets[size_t(w * slots + s) * bytes], bytes);
            while (senders[size_t(w)]->flush() > 0) {
            }
        }
        const int64_t end_ns = monotonic_ns() + kSecond;
        for (int w = 0; w < kWorkers; ++w)
            for (int got = 0; got < slots;) {
                got += receivers[size_t(w)]->receive();
                if (monotonic_ns() > end_ns)
                    give_up("packets were lost: make the sockets' buffers larger, or the window smaller");
            }
    }
};

struct Rate {
    double by_clock = 0, by_cpu = 0; // packets a second
};

/// Packets a second; only the exchange is timed, not the making of packets.
template <class Prepare> Rate measure(Workers& workers, int epochs, const Prepare& prepare) {
    int64_t wall = 0, all = 0, own = 0;
    for (int e = 0; e < epochs; ++e) {
        prepare(uint32_t(e + 1));
        const int64_t all_0 = cpu_ns(CLOCK_PROCESS_CPUTIME_ID), own_0 = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
        const int64_t wall_0 = monotonic_ns();
        workers.exchange();
        wall += monotonic_ns() - wall_0;
        all += cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - all_0;
        own += cpu_ns(CLOCK_THREAD_CPUTIME_ID) - own_0;
    }
    const double packets = double(epochs) * kWorkers * workers.slots;
    return {packets / double(wall) * 1e9, packets / double(all - own) * 1e9};
}

Rate of_echo(int lanes, int slots, int epochs) {
    Workers workers(lanes, slots);
    pin(1);
    Echo echo;
    pin(0);
    workers.connect(echo.address());
    return measure(workers, epochs, [&](uint32_t epoch) { workers.prepare(epoch, nullptr); });
}

Rate of_switch(int lanes, int slots, int epochs, bool tags) {
    Workers workers(lanes, slots);
    wire::TagKey key{};
    key[0] = 1;
    const wire::Tagger tagger(key);
    Admission admission{1, 1, {}, uint32_t(slots), lanes};
    for (const DatagramSocket& socket : workers.sockets) admission.workers.push_back(socket.address());
    if (tags)
        admission.key = key;
    std::unique_ptr<SwitchServer> server;
    pin(1);
    if (!SwitchServer::start({ipv4_port(127, 0, 0, 1, 0)}, {}, &server).ok() || !server->admit(admission).ok())
        give_up("the switch does not start");
    pin(0);
    workers.connect(server->addresses()[0]);
    return measure(workers, epochs, [&](uint32_t epoch) { workers.prepare(epoch, tags ? &tagger : nullptr); });
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

} // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
    std::printf("%6s %10s | %12s %12s %12s | %12s %12s %12s | by clock, by processor time: tags, no tags\n", "lanes",
                "bytes", "echo /s", "tags /s", "no tags /s", "echo /s cpu", "tags", "no tags");
    for (int lanes : {256, 1024, 2048}) {
        const int slots = 16, epochs = 200;
        std::vector<double> clock[3], cpu[3];
        for (int r = 0; r < rounds; ++r) {
            const Rate rates[3] = {of_echo(lanes, slots, epochs), of_switch(lanes, slots, epochs, true),
                                   of_switch(lanes, slots, epochs, false)};
            for (int i = 0; i < 3; ++i) {
                clock[i].push_back(rates[i].by_clock);
                cpu[i].push_back(rates[i].by_cpu);
            }
        }
        std::printf("%6d %10zu | %12.0f %12.0f %12.0f | %12.0f %12.0f %12.0f | %.2f %.2f, %.2f %.2f\n", lanes,
                    wire::kPacketHeaderBytes + 4 * size_t(lanes), median(clock[0]), median(clock[1]), median(clock[2]),
                    median(cpu[0]), median(cpu[1]), median(cpu[2]), median(clock[1]) / median(clock[0]),
                    median(clock[2]) / median(clock[0]), median(cpu[1]) / median(cpu[0]),
                    median(cpu[2]) / median(cpu[0]));
    }
    return 0;
}
