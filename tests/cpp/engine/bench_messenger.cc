// Latency and bandwidth of the messenger between two threads, each on a core of its own. Run by hand; no test.
//   g++ -std=c++20 -O3 -Icsrc -Itests/cpp tests/cpp/engine/bench_messenger.cc csrc/engine/messenger*.cc
//       csrc/transport/ring.cc csrc/base/status.cc <collectives_kernels and collectives_types> -pthread
// "near" or "far" (the round trip of a flag) belongs to every figure: the cores' mode changes between runs.
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "engine/messenger_world.h"
#include "kernels/kernels.h"

using namespace collectives;
using namespace collectives::testing;

namespace {

void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/// Runs body(rank) on two pinned threads and returns the nanoseconds of rank 0.
int64_t timed(const std::function<void(int)>& body) {
    std::atomic<int> ready{0};
    int64_t elapsed_ns = 0;
    const auto run = [&](int rank) {
        pin(rank);
        ready.fetch_add(1);
        while (ready.load() < 2) {
        }
        const int64_t start = monotonic_ns();
        body(rank);
        if (rank == 0)
            elapsed_ns = monotonic_ns() - start;
    };
    std::thread other(run, 1);
    std::thread self(run, 0);
    self.join();
    other.join();
    return elapsed_ns;
}

double flag_round_trip_ns() {
    constexpr int kRounds = 100000;
    alignas(64) std::atomic<int> flag{0};
    const int64_t ns = timed([&](int rank) {
        for (int i = 0; i < kRounds; ++i) {
            while (flag.load(std::memory_order_acquire) != 2 * i + rank) {
            }
            flag.store(2 * i + rank + 1, std::memory_order_release);
        }
    });
    return double(ns) / kRounds;
}

void spin(Messenger& messenger, const Done& done) {
    while (!done.ended()) messenger.progress();
}

/// Half a round trip of `bytes`, in nanoseconds.
double latency_ns(int64_t bytes, int rounds) {
    MessengerWorld world(2, 64 * 1024);
    const int64_t ns = timed([&](int rank) {
        std::vector<char> out(size_t(bytes) + 1), in(size_t(bytes) + 1);
        Messenger& me = world[rank];
        for (int i = 0; i < rounds; ++i) {
            Done received, sent;
            me.post_recv(kGroup, 1 - rank, 1, in.data(), bytes, &received);
            if (rank == 1)
                spin(me, received);
            me.post_send(kGroup, 1 - rank, 1, out.data(), bytes, &sent);
            if (rank == 0)
                spin(me, received);
            spin(me, sent);
        }
    });
    return double(ns) / rounds / 2;
}

/// Bytes a nanosecond of messages one way (or both ways at once, counted once).
double bandwidth(int64_t bytes, int64_t ring, int64_t fragment, kernels::Store store, bool both_ways) {
    MessengerConfig config;
    config.fragment_limit_bytes = fragment;
    config.copy_to_ring = kernels::copy_fn(store);
    config.copy_from_ring = kernels::copy_fn(kernels::Store::plain);
    MessengerWorld world(2, ring, config);
    constexpr int kRounds = 10;
    std::vector<std::vector<char>> out(2, std::vector<char>(size_t(bytes))), in(2, std::vector<char>(size_t(bytes)));
    const auto transfer = [&](int rank, int rounds) {
        for (int i = 0; i < rounds; ++i) {
            Done received, sent;
            if (rank == 1 || both_ways)
                world[rank].post_recv(kGroup, 1 - rank, 1, in[size_t(rank)].data(), bytes, &received);
            if (rank == 0 || both_ways)
                world[rank].post_send(kGroup, 1 - rank, 1, out[size_t(rank)].data(), bytes, &sent);
            if (rank == 0 || both_ways)
                spin(world[rank], sent);
            if (rank == 1 || both_ways)
                spin(world[rank], received);
        }
    };
    timed([&](int rank) { transfer(rank, 2); }); // first touch of the pages
    const int64_t ns = timed([&](int rank) { transfer(rank, kRounds); });
    return double(bytes) * kRounds / double(ns);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

} // namespace

int main() {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    const auto report_mode = [] { std::printf("flag round trip: %.0f ns\n", flag_round_trip_ns()); };
    report_mode();
    for (int64_t bytes : {8, 32, 256, 1024, 4096}) {
        std::vector<double> runs;
        for (int i = 0; i < 15; ++i) runs.push_back(latency_ns(bytes, 5000));
        std::printf("half round trip of %5ld bytes: median %6.0f ns, best %6.0f ns\n", long(bytes), median(runs),
                    *std::min_element(runs.begin(), runs.end()));
    }
    report_mode();
    std::printf("messages of 8 MiB, GB/s (streaming into the ring / plain; then both ways at once, each way)\n");
    for (int64_t ring : {4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10}) {
        for (int64_t fragment : {4 << 10, 8 << 10, 16 << 10}) {
            if (fragment > 4096 && fragment > ring / 8)
                continue;
            std::vector<double> figures[4];
            for (int i = 0; i < 3; ++i) {
                int column = 0;
                for (bool both : {false, true})
                    for (kernels::Store store : {kernels::Store::streaming, kernels::Store::plain})
                        figures[column++].push_back(bandwidth(8 << 20, ring, fragment, store, both));
            }
            std::printf("ring %3ld KiB, fragment %2ld KiB: %5.1f / %5.1f   %5.1f / %5.1f\n", long(ring >> 10),
                        long(fragment >> 10), median(figures[0]), median(figures[1]), median(figures[2]),
                        median(figures[3]));
        }
    }
    report_mode();
}
