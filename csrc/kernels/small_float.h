// Conversion between float32 lanes and the narrow floats by integer operations, the same bits on every target:
// SmallFloat<exponent bits, mantissa bits, has infinity>. Values sit in the low bits of 32-bit lanes. Included only by
// element.h, within a target (see simd.h).
#pragma once

#include "kernels/simd.h"

namespace collectives::kernels::COLLECTIVES_TARGET {

COLLECTIVES_INLINE Vec<float> as_float(Bits x) { return (Vec<float>)x; }
COLLECTIVES_INLINE Bits as_bits(Vec<float> x) { return (Bits)x; }
/// a < b for lanes below 2^31: signed comparison is one instruction where unsigned is three.
COLLECTIVES_INLINE Vec<int32_t> less(Bits a, Bits b) { return (Vec<int32_t>)a < (Vec<int32_t>)b; }
COLLECTIVES_INLINE Vec<int32_t> less(Bits a, uint32_t b) { return less(a, splat(b)); }
COLLECTIVES_INLINE Vec<int32_t> less(uint32_t a, Bits b) { return less(splat(a), b); }

template <int kExponentBits, int kMantissaBits, bool kHasInfinity> struct SmallFloat {
    static constexpr uint32_t kBias = (1u << (kExponentBits - 1)) - 1;
    static constexpr uint32_t kShift = 23 - kMantissaBits;
    static constexpr uint32_t kSignBit = 1u << (kExponentBits + kMantissaBits);
    static constexpr uint32_t kMagnitude = kSignBit - 1;
    static constexpr uint32_t kSignShift = 31 - (kExponentBits + kMantissaBits);
    static constexpr uint32_t kRebias = (127 - kBias) << 23;
    /// Pattern of infinity, or of the one NaN where there is no infinity.
    static constexpr uint32_t kSpecial = kHasInfinity ? kMagnitude & ~((1u << kMantissaBits) - 1) : kMagnitude;
    static constexpr uint32_t kLargest = kSpecial - 1;
    /// As torch writes it: a set quiet bit for float16, all ones in the 8-bit types.
    static constexpr uint32_t kNan = kMantissaBits > 4 ? kSpecial | (1u << (kMantissaBits - 1)) : kMagnitude;
    /// float32 bits of the smallest normal number, and of the number whose unit in the last place is the smallest
    /// denormal: adding it to a denormal lets the adder do the rounding.
    static constexpr uint32_t kSmallestNormal = (128 - kBias) << 23;
    static constexpr uint32_t kDenormalMagic = (128 - kBias + kShift) << 23;

    /// Exact. x holds the pattern in its low bits and zeros above.
    static COLLECTIVES_INLINE Vec<float> decode(Bits x) {
        const Bits sign = (x & kSignBit) << kSignShift;
        const Bits magnitude = x & kMagnitude;
        const Bits widened = magnitude << kShift;
        // A denormal m * 2^(1 - bias - M) is (1 + m 2^-M) 2^(1 - bias) minus 2^(1 - bias): no denormal float32 arises.
        const Bits denormal = as_bits(as_float(widened + kSmallestNormal) - as_float(splat<uint32_t>(kSmallestNormal)));
        Bits result = less(magnitude, 1u << kMantissaBits) ? denormal : widened + kRebias;
        if constexpr (kHasInfinity) {
            result = less(kSpecial - 1, magnitude) ? widened | 0x7f800000u : result;
        } else {
            result = magnitude == splat(kSpecial) ? splat<uint32_t>(0x7fc00000u) : result;
        }
        return as_float(result | sign);
    }

    /// To nearest even. Past the largest: infinity, or the largest where there is no infinity. NaN becomes kNan.
    static COLLECTIVES_INLINE Bits encode(Vec<float> value) {
        const Bits bits = as_bits(value);
        const Bits sign = (bits >> kSignShift) & kSignBit;
        const Bits magnitude = bits & 0x7fffffffu;
        const Bits denormal = as_bits(as_float(magnitude) + as_float(splat<uint32_t>(kDenormalMagic))) - kDenormalMagic;
        const Bits odd = (magnitude >> kShift) & 1u;
        // Rounding may carry into the exponent, which is right, and from the largest exponent into kSpecial or past it.
        Bits normal = (magnitude - kRebias + ((1u << (kShift - 1)) - 1) + odd) >> kShift;
        constexpr uint32_t cap = kHasInfinity ? kSpecial : kLargest;
        normal = less(cap, normal) ? splat(cap) : normal;
        Bits result = less(magnitude, kSmallestNormal) ? denormal : normal;
        result |= sign;
        return less(0x7f800000u, magnitude) ? splat(kNan) : result;
    }
};

/// bfloat16 is the upper half of a float32: patterns sit in the upper 16 bits of the lane here.
struct UpperHalf {
    static COLLECTIVES_INLINE Vec<float> decode(Bits x) { return as_float(x & 0xffff0000u); }

    static COLLECTIVES_INLINE Bits encode(Vec<float> value) {
        const Bits bits = as_bits(value);
        const Bits rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
        return (value != value ? splat<uint32_t>(0x7fc00000u) : rounded) & 0xffff0000u;
    }
};

} // namespace collectives::kernels::COLLECTIVES_TARGET
