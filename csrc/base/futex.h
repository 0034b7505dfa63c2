// futex_wait and futex_wake on a word that may be shared between processes. Linux only.
// May be included by transport and engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

namespace collectives {

/// Sleeps while *word == expected, at most `timeout_ns`. Returns early for signals and spuriously.
inline void futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, int64_t timeout_ns) {
    timespec t{time_t(timeout_ns / kSecond), long(timeout_ns % kSecond)};
    syscall(SYS_futex, reinterpret_cast<const uint32_t*>(word), FUTEX_WAIT, expected, &t, nullptr, 0);
}

inline void futex_wake_all(std::atomic<uint32_t>* word) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, 0x7fffffff, nullptr, nullptr, 0);
}

} // namespace collectives
