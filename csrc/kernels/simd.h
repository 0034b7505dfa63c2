// The unit of all kernels: one native vector of the target being compiled. Lane types, loads and stores (plain,
// non-temporal, partial). Included only through the target_*.cc files, which define
// COLLECTIVES_TARGET (a namespace), COLLECTIVES_WIDTH (bytes of a native vector) and COLLECTIVES_X86 (0: no intrinsics,
// 1: SSE2, 2: AVX2 and F16C, 3: AVX-512). Everything lives in the target's namespace and nothing here calls an inline
// function of the standard library: the linker could otherwise keep this target's copy for the whole program, and a
// lesser processor would meet instructions that it lacks.
#pragma once

#include <stddef.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define COLLECTIVES_INLINE __attribute__((always_inline)) inline

namespace collectives::kernels::COLLECTIVES_TARGET {

inline constexpr int kLineBytes = 64; ///< of a cache line
inline constexpr int kWidth = COLLECTIVES_WIDTH;

template <class T> struct VecOf {
    typedef T Type __attribute__((vector_size(kWidth)));
    typedef T Unaligned __attribute__((vector_size(kWidth), aligned(1), may_alias));
};
/// One native vector of lanes T. Operators work lane by lane; a comparison gives a mask of -1 and 0.
template <class T> using Vec = typename VecOf<T>::Type;
using Bits = Vec<uint32_t>;

/// N native vectors side by side.
template <class T, int N> struct Regs {
    Vec<T> v[N];
};

template <class T> COLLECTIVES_INLINE Vec<T> splat(T x) { return x - Vec<T>{}; }

COLLECTIVES_INLINE Bits load(const char* p) { return *reinterpret_cast<const VecOf<uint32_t>::Unaligned*>(p); }

COLLECTIVES_INLINE void store(char* p, Bits x) { *reinterpret_cast<VecOf<uint32_t>::Unaligned*>(p) = x; }

/// Non-temporal store; p is aligned to a vector, and the caller fills whole lines. The generic target has no such store
/// that compilers offer portably, and stores plainly.
COLLECTIVES_INLINE void stream(char* p, Bits x) {
#if COLLECTIVES_X86 == 3
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p), (__m512i)x);
#elif COLLECTIVES_X86 == 2
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), (__m256i)x);
#elif COLLECTIVES_X86 == 1
    _mm_stream_si128(reinterpret_cast<__m128i*>(p), (__m128i)x);
#else
    store(p, x);
#endif
}

/// Orders non-temporal stores before whatever the caller stores next (they are not ordered by a release store).
COLLECTIVES_INLINE void stream_fence() {
#if COLLECTIVES_X86 > 0
    _mm_sfence();
#endif
}

/// Copies 0 to 64 bytes without a call and without touching a byte outside: two moves that may overlap.
COLLECTIVES_INLINE void copy_small(char* d, const char* s, int64_t n) {
    auto pair = [&]<class Piece>(Piece) {
        constexpr int64_t size = sizeof(Piece);
        Piece first, last;
        __builtin_memcpy(&first, s, size);
        __builtin_memcpy(&last, s + n - size, size);
        __builtin_memcpy(d, &first, size);
        __builtin_memcpy(d + n - size, &last, size);
    };
    struct Bytes16 {
        uint64_t half[2];
    };
    struct Bytes32 {
        uint64_t quarter[4];
    };
    if (n >= 32)
        return pair(Bytes32{});
    if (n >= 16)
        return pair(Bytes16{});
    if (n >= 8)
        return pair(uint64_t{});
    if (n >= 4)
        return pair(uint32_t{});
    if (n >= 2)
        return pair(uint16_t{});
    if (n == 1)
        *d = *s;
}

/// The first n bytes (1 to kWidth) at p, zeros after them; no byte beyond is read.
COLLECTIVES_INLINE Bits load_partial(const char* p, int64_t n) {
#if COLLECTIVES_X86 == 3
    return (Bits)_mm512_maskz_loadu_epi8(~uint64_t{0} >> (kWidth - n), p);
#else
    if (n == kWidth)
        return load(p);
    alignas(kWidth) char buffer[kWidth] = {};
    copy_small(buffer, p, n);
    return load(buffer);
#endif
}

/// Stores the first n bytes (1 to kWidth); no byte beyond is written.
COLLECTIVES_INLINE void store_partial(char* p, Bits x, int64_t n) {
#if COLLECTIVES_X86 == 3
    _mm512_mask_storeu_epi8(p, ~uint64_t{0} >> (kWidth - n), (__m512i)x);
#else
    if (n == kWidth)
        return store(p, x);
    alignas(kWidth) char buffer[kWidth];
    store(buffer, x);
    copy_small(p, buffer, n);
#endif
}

/// Bytes from p to the next line boundary (0 when p is on one).
COLLECTIVES_INLINE int64_t bytes_to_line(const void* p) {
    return static_cast<int64_t>(-reinterpret_cast<uintptr_t>(p) & (kLineBytes - 1));
}

} // namespace collectives::kernels::COLLECTIVES_TARGET
