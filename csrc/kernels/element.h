// The element types as the kernels see them: how a vector of storage becomes accumulator lanes and back. Each has Acc
// (lane type of the accumulator), kVecs (accumulator vectors to a vector of storage), decode and encode (NaN is made
// canonical). The order of lanes is the element's own business: decode and encode agree, and no other lane is mixed in.
// Included only by reduce_impl.h and scale_impl.h, within a target (see simd.h).
#pragma once

#include "kernels/simd.h"
#include "kernels/small_float.h"

namespace collectives::kernels::COLLECTIVES_TARGET {

/// Integers: lanes as they lie in memory. Sums and products take the unsigned type, for overflow that wraps.
template <class T> struct Integer {
    using Acc = T;
    static constexpr int kVecs = 1;
    static COLLECTIVES_INLINE void decode(Bits x, Regs<T, 1>& out) { out.v[0] = (Vec<T>)x; }
    static COLLECTIVES_INLINE Bits encode(const Regs<T, 1>& in) { return (Bits)in.v[0]; }
};

/// bool: any non-zero byte is true.
struct Boolean : Integer<uint8_t> {
    static COLLECTIVES_INLINE void decode(Bits x, Regs<uint8_t, 1>& out) {
        out.v[0] = (Vec<uint8_t>)((Vec<uint8_t>)x != 0) & uint8_t{1};
    }
};

template <class T> COLLECTIVES_INLINE Vec<T> canonical_nan(Vec<T> x) {
    return x != x ? splat<T>(sizeof(T) == 4 ? static_cast<T>(__builtin_nanf("")) : static_cast<T>(__builtin_nan("")))
                  : x;
}

/// float32 and float64, and complex numbers as pairs of them.
template <class T> struct Real {
    using Acc = T;
    static constexpr int kVecs = 1;
    static COLLECTIVES_INLINE void decode(Bits x, Regs<T, 1>& out) { out.v[0] = (Vec<T>)x; }
    static COLLECTIVES_INLINE Bits encode(const Regs<T, 1>& in) { return (Bits)canonical_nan<T>(in.v[0]); }
};

/// bfloat16: the even elements in one vector, the odd ones in the next, so that no lane ever moves.
struct BFloat16 {
    using Acc = float;
    static constexpr int kVecs = 2;
    static COLLECTIVES_INLINE void decode(Bits x, Regs<float, 2>& out) {
        out.v[0] = UpperHalf::decode(x << 16);
        out.v[1] = UpperHalf::decode(x);
    }
    static COLLECTIVES_INLINE Bits encode(const Regs<float, 2>& in) {
        return UpperHalf::encode(in.v[0]) >> 16 | UpperHalf::encode(in.v[1]);
    }
};

/// float16, by the processor's own conversion where it has one (the same bits but for the payload of a NaN).
struct Float16 {
    using Acc = float;
    static constexpr int kVecs = 2;
#if COLLECTIVES_X86 == 3
    static constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    static COLLECTIVES_INLINE void decode(Bits x, Regs<float, 2>& out) {
        const __m512i bits = (__m512i)x;
        out.v[0] = (Vec<float>)_mm512_cvtph_ps(_mm512_castsi512_si256(bits));
        out.v[1] = (Vec<float>)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1));
    }
    static COLLECTIVES_INLINE Bits encode(const Regs<float, 2>& in) {
        const __m256i low = _mm512_cvtps_ph((__m512)canonical_nan<float>(in.v[0]), kRound);
        const __m256i high = _mm512_cvtps_ph((__m512)canonical_nan<float>(in.v[1]), kRound);
        return (Bits)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
#elif COLLECTIVES_X86 == 2
    static constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    static COLLECTIVES_INLINE void decode(Bits x, Regs<float, 2>& out) {
        const __m256i bits = (__m256i)x;
        out.v[0] = (Vec<float>)_mm256_cvtph_ps(_mm256_castsi256_si128(bits));
        out.v[1] = (Vec<float>)_mm256_cvtph_ps(_mm256_extracti128_si256(bits, 1));
    }
    static COLLECTIVES_INLINE Bits encode(const Regs<float, 2>& in) {
        const __m128i low = _mm256_cvtps_ph((__m256)canonical_nan<float>(in.v[0]), kRound);
        const __m128i high = _mm256_cvtps_ph((__m256)canonical_nan<float>(in.v[1]), kRound);
        return (Bits)_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    }
#else
    using Format = SmallFloat<5, 10, true>;
    static COLLECTIVES_INLINE void decode(Bits x, Regs<float, 2>& out) {
        out.v[0] = Format::decode(x & 0xffffu);
        out.v[1] = Format::decode(x >> 16);
    }
    static COLLECTIVES_INLINE Bits encode(const Regs<float, 2>& in) {
        return Format::encode(in.v[0]) | Format::encode(in.v[1]) << 16;
    }
#endif
};

/// float8: byte k of every 32-bit lane in vector k.
template <class Format> struct Float8 {
    using Acc = float;
    static constexpr int kVecs = 4;
    static COLLECTIVES_INLINE void decode(Bits x, Regs<float, 4>& out) {
        out.v[0] = Format::decode(x & 0xffu);
        out.v[1] = Format::decode(x >> 8 & 0xffu);
        out.v[2] = Format::decode(x >> 16 & 0xffu);
        out.v[3] = Format::decode(x >> 24);
    }
    static COLLECTIVES_INLINE Bits encode(const Regs<float, 4>& in) {
        return Format::encode(in.v[0]) | Format::encode(in.v[1]) << 8 | Format::encode(in.v[2]) << 16 |
               Format::encode(in.v[3]) << 24;
    }
};
using Float8E4M3FN = Float8<SmallFloat<4, 3, false>>;
using Float8E5M2 = Float8<SmallFloat<5, 2, true>>;

} // namespace collectives::kernels::COLLECTIVES_TARGET
