// Multiplication by a factor, for PREMUL_SUM. Included only by target_impl.h, within a target (see simd.h).
#pragma once

#include "kernels/element.h"
#include "kernels/float_mode.h"
#include "kernels/operation.h"

namespace collectives::kernels::COLLECTIVES_TARGET {

/// Operation is Product (every lane by the real factor) or ComplexProduct.
template <class Element, class Operation>
[[gnu::noinline]] void scale(char* dst, const char* src, int64_t bytes, double re, double im) {
    using Acc = typename Element::Acc;
    Vec<Acc> factor = splat(static_cast<Acc>(re));
    if constexpr (__is_same(Operation, ComplexProduct))
        for (unsigned i = 1; i < kWidth / sizeof(Acc); i += 2) factor[i] = static_cast<Acc>(im);
    for (int64_t at = 0; at < bytes; at += kWidth) {
        const int64_t n = bytes - at < kWidth ? bytes - at : kWidth;
        Regs<Acc, Element::kVecs> lanes;
        Element::decode(load_partial(src + at, n), lanes);
#pragma GCC unroll 4
        for (int i = 0; i < Element::kVecs; ++i) lanes.v[i] = Operation::template apply<Acc>(lanes.v[i], factor);
        store_partial(dst + at, Element::encode(lanes), n);
    }
}

template <class Element, int kBytes>
void scale_entry(void* dst, const void* src, int64_t count, double factor_re, double /*factor_im, 0*/) {
    const FloatMode mode;
    scale<Element, Product>(static_cast<char*>(dst), static_cast<const char*>(src), count * kBytes, factor_re, 0.0);
}

template <class T>
void scale_complex_entry(void* dst, const void* src, int64_t count, double factor_re, double factor_im) {
    const FloatMode mode;
    char* d = static_cast<char*>(dst);
    const char* s = static_cast<const char*>(src);
    const int64_t bytes = count * static_cast<int64_t>(2 * sizeof(T));
    // A real factor acts on each component, so that infinity times 2 stays infinite rather than become NaN.
    if (factor_im == 0)
        scale<Real<T>, Product>(d, s, bytes, factor_re, 0.0);
    else
        scale<Real<T>, ComplexProduct>(d, s, bytes, factor_re, factor_im);
}

} // namespace collectives::kernels::COLLECTIVES_TARGET
