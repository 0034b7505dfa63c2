// What the machine itself can do, measured beside the collectives: the round trip of a flag between two cores (near or
// far), what each core copies a second while every core copies, and the time of a zero-copy all_reduce's bare memory
// accesses. Built and run by probe.py as a program of its own; includes only the standard library.
//
// Usage: probe --cores 0,1 [--ranks 2] [--sizes 8,64,...]     One JSON object on standard output.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;

double since_ns(Clock::time_point start) {
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

void pin_to(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        std::fprintf(stderr, "probe: cannot run on core %d: give cores of this process's cpuset\n", core);
        std::exit(2);
    }
}

void relax() {
#if defined(__SSE2__)
    _mm_pause();
#endif
}

// Two lines apart, so that the adjacent-line prefetcher does not tie them together.
struct alignas(128) Flag {
    std::atomic<std::uint64_t> value{0};
};

void wait_for(const Flag& flag, std::uint64_t value) {
    while (flag.value.load(std::memory_order_acquire) < value) relax();
}

// The least of several batches: an interrupt or a neighbour only ever makes one longer.
double round_trip_ns(int first_core, int second_core) {
    constexpr int batches = 20, trips = 1000;
    Flag ping, pong;
    std::thread other([&] {
        pin_to(second_core);
        for (std::uint64_t i = 1; i <= std::uint64_t{batches} * trips; ++i) {
            wait_for(ping, i);
            pong.value.store(i, std::memory_order_release);
        }
    });
    pin_to(first_core);
    double least = std::numeric_limits<double>::infinity();
    std::uint64_t i = 0;
    for (int batch = 0; batch < batches; ++batch) {
        auto start = Clock::now();
        for (int trip = 0; trip < trips; ++trip) {
            ping.value.store(++i, std::memory_order_release);
            wait_for(pong, i);
        }
        least = std::min(least, since_ns(start) / trips);
    }
    other.join();
    return least;
}

// Private, with large pages where the system has them: as NumPy's large arrays are. Shared: as memfd memory is.
float* map_floats(std::size_t bytes, bool shared) {
    std::size_t length = std::max<std::size_t>(bytes, 4096);
    void* memory =
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);
    if (memory == MAP_FAILED) {
        std::fprintf(stderr, "probe: cannot map %zu bytes: give smaller --sizes\n", length);
        std::exit(2);
    }
    if (!shared)
        madvise(memory, length, MADV_HUGEPAGE);
    std::fill_n(static_cast<float*>(memory), length / sizeof(float), 1.0F);
    return static_cast<float*>(memory);
}

void unmap_floats(float* memory, std::size_t bytes) { munmap(memory, std::max<std::size_t>(bytes, 4096)); }

void store(float* to, const float* from, std::size_t count, bool streaming) {
#if defined(__SSE2__)
    if (streaming && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
        std::size_t i = 0;
        for (; i + 4 <= count; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
        std::memcpy(to + i, from + i, (count - i) * sizeof(float));
        return;
    }
#endif
    std::memcpy(to, from, count * sizeof(float));
}

void finish_streaming() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

// Runs `work(thread)` on every core at once `repeats` times, `prepare(thread)` before each; returns the least over the
// repeats of the slowest core's nanoseconds: what a machine can do is seen only where nothing disturbs it.
double slowest_least_ns(const std::vector<int>& cores, int repeats, const std::function<void(int)>& prepare,
                        const std::function<void(int)>& work) {
    const int threads = static_cast<int>(cores.size());
    std::vector<std::vector<double>> times(threads, std::vector<double>(repeats));
    std::vector<Flag> arrived(threads);
    auto meet = [&](int self, std::uint64_t step) {
        arrived[self].value.store(step, std::memory_order_release);
        for (const Flag& flag : arrived) wait_for(flag, step);
    };
    std::vector<std::thread> team;
    for (int self = 0; self < threads; ++self)
        team.emplace_back([&, self] {
            pin_to(cores[self]);
            for (int i = 0; i < repeats; ++i) {
                prepare(self);
                meet(self, 2 * std::uint64_t(i) + 1);
                auto start = Clock::now();
                work(self);
                times[self][i] = since_ns(start);
                meet(self, 2 * std::uint64_t(i) + 2);
            }
        });
    for (auto& thread : team) thread.join();
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < repeats; ++i) {
        double slowest = 0;
        for (const auto& one : times) slowest = std::max(slowest, one[i]);
        least = std::min(least, slowest);
    }
    return least;
}

int repeats_for(std::size_t bytes) { return static_cast<int>(std::clamp<std::size_t>((64U << 20) / bytes, 15, 200)); }

// Bytes read plus bytes written a nanosecond by each core, all copying at once: the better of plain and streaming stores.
double copy_gbps_a_core(const std::vector<int>& cores, std::size_t bytes) {
    std::vector<float*> from, to;
    for (std::size_t i = 0; i < cores.size(); ++i) {
        from.push_back(map_floats(bytes, false));
        to.push_back(map_floats(bytes, false));
    }
    // Small copies are repeated within one timing, so that the clock's own 20 to 30 ns do not count.
    const std::size_t inner = std::max<std::size_t>(1, (64U << 10) / bytes);
    double best_ns = std::numeric_limits<double>::infinity();
    for (bool streaming : {false, true})
        best_ns = std::min(best_ns, slowest_least_ns(
                                        cores, repeats_for(bytes * inner), [](int) {},
                                        [&](int self) {
                                            for (std::size_t i = 0; i < inner; ++i) {
                                                store(to[self], from[self], bytes / sizeof(float), streaming);
                                                asm volatile("" ::: "memory");
                                            }
                                            finish_streaming();
                                        }));
    for (std::size_t i = 0; i < cores.size(); ++i) {
        unmap_floats(from[i], bytes);
        unmap_floats(to[i], bytes);
    }
    return 2.0 * static_cast<double>(bytes) * static_cast<double>(inner) / best_ns;
}

// Two vectors, the usual case: sum and both stores in one pass, nothing parked in between.
void reduce_pair(float* __restrict__ first, float* __restrict__ second, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
        const float sum = first[i] + second[i];
        first[i] = sum;
        second[i] = sum;
    }
}

void reduce_range(const std::vector<float*>& vectors, std::size_t begin, std::size_t end, bool streaming) {
    if (vectors.size() == 2 && !streaming) {
        reduce_pair(vectors[0], vectors[1], begin, end);
        return;
    }
    constexpr std::size_t block = 1024;
    alignas(64) float sum[block];
    for (std::size_t at = begin; at < end; at += block) {
        const std::size_t count = std::min(block, end - at);
        std::memcpy(sum, vectors[0] + at, count * sizeof(float));
        for (std::size_t v = 1; v < vectors.size(); ++v)
            for (std::size_t i = 0; i < count; ++i) sum[i] += vectors[v][at + i];
        for (float* vector : vectors) store(vector + at, sum, count, streaming);
    }
    finish_streaming();
}

// Every rank's vector in shared memory; each core reduces its share of all of them and writes it to all. Before each
// repeat the owner rewrites its vector, as the benchmark does between iterations.
double zero_copy_all_reduce_us(const std::vector<int>& cores, int ranks, std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float), threads = cores.size();
    std::vector<float*> vectors;
    for (int i = 0; i < ranks; ++i) vectors.push_back(map_floats(bytes, true));
    auto refill = [&](int self) {
        for (std::size_t v = self; v < vectors.size(); v += threads) std::fill_n(vectors[v], count, 1.0F);
    };
    double best_ns = std::numeric_limits<double>::infinity();
    for (bool streaming : {false, true})
        best_ns = std::min(best_ns, slowest_least_ns(cores, repeats_for(bytes), refill, [&](int self) {
                               // Shares start on 16-byte borders, where streaming stores want them.
                               auto border = [&](std::size_t share) { return count / 4 * share / threads * 4; };
                               const std::size_t end = self + 1U == threads ? count : border(self + 1);
                               reduce_range(vectors, border(self), end, streaming);
                           }));
    for (float* vector : vectors) unmap_floats(vector, bytes);
    return best_ns / 1e3;
}

std::vector<std::size_t> numbers(const char* text) {
    std::vector<std::size_t> values;
    for (const char* at = text; *at != '\0';) {
        char* end = nullptr;
        values.push_back(std::strtoull(at, &end, 10));
        if (end == at) {
            std::fprintf(stderr, "probe: '%s' is no list of numbers\n", text);
            std::exit(2);
        }
        at = *end == ',' ? end + 1 : end;
    }
    return values;
}

} // namespace

int main(int argc, char** argv) {
    std::vector<int> cores{0, 1};
    std::vector<std::size_t> sizes;
    int ranks = 2;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string name = argv[i];
        auto values = numbers(argv[i + 1]);
        if (name == "--cores")
            cores.assign(values.begin(), values.end());
        else if (name == "--sizes")
            sizes = values;
        else if (name == "--ranks")
            ranks = static_cast<int>(values.at(0));
        else {
            std::fprintf(stderr, "probe: unknown option %s\n", name.c_str());
            return 2;
        }
    }
    std::printf("{\"round_trip_ns\": ");
    cores.size() > 1 ? std::printf("%.1f", round_trip_ns(cores[0], cores[1])) : std::printf("null");
    std::printf(", \"copy_gbps_a_core\": {");
    for (std::size_t i = 0; i < sizes.size(); ++i)
        std::printf("%s\"%zu\": %.3f", i ? ", " : "", sizes[i],
                    copy_gbps_a_core(cores, std::max<std::size_t>(sizes[i], 4)));
    std::printf("}, \"zero_copy_all_reduce_us\": {");
    bool first = true;
    for (std::size_t bytes : sizes) {
        if (bytes < (1U << 20))
            continue; // below, synchronisation counts, not bytes
        std::printf("%s\"%zu\": %.2f", first ? "" : ", ", bytes, zero_copy_all_reduce_us(cores, ranks, bytes));
        first = false;
    }
    std::printf("}}\n");
}
