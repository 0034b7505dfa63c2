// Sets the floating-point mode that all kernels assume for the length of a call: round to nearest, denormals kept.
// A program may have asked for flush-to-zero in one thread (torch.set_flush_denormal) and not in another; the bits of a
// reduction must not depend on which thread ran it. Included only by reduce_impl.h and scale_impl.h, within a target.
#pragma once

#include "kernels/simd.h"

namespace collectives::kernels::COLLECTIVES_TARGET {

#if defined(__x86_64__)
/// MXCSR: flush to zero, rounding control, denormals are zero.
class FloatMode {
  public:
    COLLECTIVES_INLINE FloatMode() : saved_(_mm_getcsr()) {
        if (__builtin_expect((saved_ & kOurs) != 0, 0))
            _mm_setcsr(saved_ & ~kOurs);
    }
    COLLECTIVES_INLINE ~FloatMode() {
        if (__builtin_expect((saved_ & kOurs) != 0, 0))
            _mm_setcsr(saved_);
    }
    FloatMode(const FloatMode&) = delete;
    FloatMode& operator=(const FloatMode&) = delete;

  private:
    static constexpr unsigned kOurs = 0x8000u | 0x6000u | 0x0040u;
    unsigned saved_;
};
#elif defined(__aarch64__)
/// FPCR: flush to zero, rounding mode, default NaN is harmless.
class FloatMode {
  public:
    COLLECTIVES_INLINE FloatMode() {
        asm volatile("mrs %0, fpcr" : "=r"(saved_));
        if (__builtin_expect((saved_ & kOurs) != 0, 0))
            asm volatile("msr fpcr, %0" : : "r"(saved_ & ~kOurs));
    }
    COLLECTIVES_INLINE ~FloatMode() {
        if (__builtin_expect((saved_ & kOurs) != 0, 0))
            asm volatile("msr fpcr, %0" : : "r"(saved_));
    }
    FloatMode(const FloatMode&) = delete;
    FloatMode& operator=(const FloatMode&) = delete;

  private:
    static constexpr uint64_t kOurs = (uint64_t{1} << 24) | (uint64_t{3} << 22);
    uint64_t saved_;
};
#else
#error "float_mode.h: say here how this architecture's rounding and flush-to-zero modes are read and set"
#endif

} // namespace collectives::kernels::COLLECTIVES_TARGET
