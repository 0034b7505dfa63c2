// Copies with plain or non-temporal stores. Included only by reduce_impl.h and target_impl.h, within a target.
#pragma once

#include "kernels/simd.h"

namespace collectives::kernels::COLLECTIVES_TARGET {

/// Non-temporal stores of whole lines; the parts of lines at both ends are stored plainly.
inline void copy_streaming(void* dst, const void* src, int64_t bytes) {
    if (dst == src || bytes <= 0)
        return;
    char* d = static_cast<char*>(dst);
    const char* s = static_cast<const char*>(src);
    const int64_t head = bytes_to_line(d);
    if (bytes < head + kLineBytes) {
        __builtin_memcpy(d, s, static_cast<size_t>(bytes));
        return;
    }
    copy_small(d, s, head);
    int64_t at = head;
    constexpr int unroll = 4 * kLineBytes / kWidth;
    for (; at + unroll * kWidth <= bytes; at += unroll * kWidth) {
        Regs<uint32_t, unroll> block;
#pragma GCC unroll 16
        for (int u = 0; u < unroll; ++u) block.v[u] = load(s + at + u * kWidth);
#pragma GCC unroll 16
        for (int u = 0; u < unroll; ++u) stream(d + at + u * kWidth, block.v[u]);
    }
    for (; at + kWidth <= bytes; at += kWidth) stream(d + at, load(s + at));
    copy_small(d + at, s + at, bytes - at);
    stream_fence();
}

inline void copy_plain(void* dst, const void* src, int64_t bytes) {
    if (dst == src || bytes <= 0)
        return;
    __builtin_memcpy(dst, src, static_cast<size_t>(bytes));
}

} // namespace collectives::kernels::COLLECTIVES_TARGET
