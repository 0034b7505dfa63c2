// The reduce operations on accumulator lanes: Operation::apply<Element>(a, b) gives a op b. Included only by
// reduce_impl.h and scale_impl.h, within a target (see simd.h).
#pragma once

#include "kernels/element.h"

namespace collectives::kernels::COLLECTIVES_TARGET {

template <class T> inline constexpr bool is_float_lane = false;
template <> inline constexpr bool is_float_lane<float> = true;
template <> inline constexpr bool is_float_lane<double> = true;

template <class T> struct UintOf;
template <> struct UintOf<float> {
    using Type = uint32_t;
};
template <> struct UintOf<double> {
    using Type = uint64_t;
};

struct Sum {
    template <class T> static COLLECTIVES_INLINE Vec<T> apply(Vec<T> a, Vec<T> b) { return a + b; }
};

struct Product {
    template <class T> static COLLECTIVES_INLINE Vec<T> apply(Vec<T> a, Vec<T> b) { return a * b; }
};

/// The smaller; -0 before +0; NaN (of any payload, store makes it canonical) where either is NaN.
struct Min {
    template <class T> static COLLECTIVES_INLINE Vec<T> apply(Vec<T> a, Vec<T> b) {
        if constexpr (!is_float_lane<T>) {
            return a < b ? a : b;
        } else {
            // The processor's minimum gives its second operand when the two are equal or one is NaN. So both orders
            // together hold the sign of a -0 and the pattern of a NaN, and are the same number otherwise.
            using Uint = Vec<typename UintOf<T>::Type>;
            return (Vec<T>)((Uint)second_unless_less<T>(a, b) | (Uint)second_unless_less<T>(b, a));
        }
    }

  private:
    template <class T> static COLLECTIVES_INLINE Vec<T> second_unless_less(Vec<T> a, Vec<T> b) {
#if COLLECTIVES_X86 == 3
        if constexpr (sizeof(T) == 4)
            return (Vec<T>)_mm512_min_ps((__m512)a, (__m512)b);
        else
            return (Vec<T>)_mm512_min_pd((__m512d)a, (__m512d)b);
#elif COLLECTIVES_X86 == 2
        if constexpr (sizeof(T) == 4)
            return (Vec<T>)_mm256_min_ps((__m256)a, (__m256)b);
        else
            return (Vec<T>)_mm256_min_pd((__m256d)a, (__m256d)b);
#elif COLLECTIVES_X86 == 1
        if constexpr (sizeof(T) == 4)
            return (Vec<T>)_mm_min_ps((__m128)a, (__m128)b);
        else
            return (Vec<T>)_mm_min_pd((__m128d)a, (__m128d)b);
#else
        return a < b ? a : b;
#endif
    }
};

/// The larger; +0 after -0; NaN where either is NaN.
struct Max {
    template <class T> static COLLECTIVES_INLINE Vec<T> apply(Vec<T> a, Vec<T> b) {
        if constexpr (is_float_lane<T>)
            return -Min::apply<T>(-a, -b); // exact: only signs change
        else
            return a > b ? a : b;
    }
};

struct BitAnd {
    template <class T> static COLLECTIVES_INLINE Vec<T> apply(Vec<T> a, Vec<T> b) { return a & b; }
};
struct BitOr {
    template <class T> static COLLECTIVES_INLINE Vec<T> apply(Vec<T> a, Vec<T> b) { return a | b; }
};
struct BitXor {
    template <class T> static COLLECTIVES_INLINE Vec<T> apply(Vec<T> a, Vec<T> b) { return a ^ b; }
};

/// (ar br - ai bi, ai br + ar bi), each product and sum rounded, as torch multiplies; lanes are (real, imaginary) pairs.
struct ComplexProduct {
    template <class T> static COLLECTIVES_INLINE Vec<T> apply(Vec<T> a, Vec<T> b) {
        using Uint = typename UintOf<T>::Type;
        const Vec<T> straight = a * pick<T, 0, 0>(b);
        const Vec<T> crossed = pick<T, 1, 0>(a) * pick<T, 1, 1>(b);
        return straight + (Vec<T>)((Vec<Uint>)crossed ^ real_signs<Uint>());
    }

  private:
    /// Lane kReal (0 or 1) of every pair as its real part, lane kImaginary as its imaginary part.
    template <class T, int kReal, int kImaginary> static COLLECTIVES_INLINE Vec<T> pick(Vec<T> x) {
        constexpr int lanes = kWidth / sizeof(T);
        if constexpr (lanes == 2) {
            return __builtin_shufflevector(x, x, kReal, kImaginary);
        } else if constexpr (lanes == 4) {
            return __builtin_shufflevector(x, x, kReal, kImaginary, 2 + kReal, 2 + kImaginary);
        } else if constexpr (lanes == 8) {
            return __builtin_shufflevector(x, x, kReal, kImaginary, 2 + kReal, 2 + kImaginary, 4 + kReal,
                                           4 + kImaginary, 6 + kReal, 6 + kImaginary);
        } else {
            static_assert(lanes == 16);
            return __builtin_shufflevector(x, x, kReal, kImaginary, 2 + kReal, 2 + kImaginary, 4 + kReal,
                                           4 + kImaginary, 6 + kReal, 6 + kImaginary, 8 + kReal, 8 + kImaginary,
                                           10 + kReal, 10 + kImaginary, 12 + kReal, 12 + kImaginary, 14 + kReal,
                                           14 + kImaginary);
        }
    }

    /// The sign bit in every real lane.
    template <class Uint> static COLLECTIVES_INLINE Vec<Uint> real_signs() {
        Vec<Uint> signs{};
#pragma GCC unroll 8
        for (unsigned i = 0; i < kWidth / sizeof(Uint); i += 2) signs[i] = Uint{1} << (8 * sizeof(Uint) - 1);
        return signs;
    }
};

} // namespace collectives::kernels::COLLECTIVES_TARGET
