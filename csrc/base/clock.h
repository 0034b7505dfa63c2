// Time as an argument: everything that waits takes a deadline in nanoseconds of this clock, or a Clock to ask.
// May be included by everything; includes nothing of ours.
#pragma once

#include <cstdint>
#include <ctime>
#include <limits>

namespace collectives {

constexpr int64_t kNanosecond = 1;
constexpr int64_t kMicrosecond = 1000;
constexpr int64_t kMillisecond = 1000 * kMicrosecond;
constexpr int64_t kSecond = 1000 * kMillisecond;
constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

/// Monotonic nanoseconds.
inline int64_t monotonic_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * kSecond + t.tv_nsec;
}

/// deadline = now + timeout, saturating.
inline int64_t deadline_after(int64_t now_ns, int64_t timeout_ns) {
    return timeout_ns >= kForever - now_ns ? kForever : now_ns + timeout_ns;
}

} // namespace collectives
