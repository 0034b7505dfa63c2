// One breath of a spinning core: tells the processor that this is a wait. May be included by everything.
#pragma once

namespace collectives {

inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

} // namespace collectives
