// The reduce kernels: any number of sources into any number of destinations in one pass, each source read once and each
// destination written once, partial sums in registers. Included only by target_impl.h, within a target (see simd.h).
#pragma once

#include "kernels/copy_impl.h"
#include "kernels/element.h"
#include "kernels/float_mode.h"
#include "kernels/operation.h"
#include "kernels/table.h"

namespace collectives::kernels::COLLECTIVES_TARGET {

/// What one call works on, in bytes from the start of every buffer.
struct ReduceJob {
    char* const* dsts;
    int n_dsts;
    const char* const* srcs;
    int n_srcs;
    int64_t bytes;
    int element_bytes;
    bool streaming;
};

/// What is done to a finished sum: nothing.
template <class Acc> struct Keep {
    explicit COLLECTIVES_INLINE Keep(double) {}
    COLLECTIVES_INLINE Vec<Acc> operator()(Vec<Acc> x) const { return x; }
};

/// Division by the divisor of an average. A power of two is multiplied by its reciprocal, which gives the same bits
/// (both are the one correctly rounded quotient) at many times the speed.
template <class Acc> class Divide {
  public:
    explicit COLLECTIVES_INLINE Divide(double divisor)
        : factor_(static_cast<Acc>(divisor)), exact_(is_modest_power_of_two(static_cast<Acc>(divisor))) {
        if (exact_) factor_ = Acc{1} / factor_;
    }
    COLLECTIVES_INLINE Vec<Acc> operator()(Vec<Acc> x) const {
        const Vec<Acc> factor = splat(factor_);
        return exact_ ? x * factor : x / factor;
    }

  private:
    static COLLECTIVES_INLINE bool is_modest_power_of_two(Acc x) {
        for (Acc power = 1; power <= Acc{1 << 20}; power *= 2)
            if (x == power) return true;
        return false;
    }
    Acc factor_;
    bool exact_;
};

/// Vectors of storage per step of the main loop: enough independent chains to hide the latency of an addition, few
/// enough for the registers. The step is a power of two of vectors, so that lines are filled in order.
template <class Element> inline constexpr int kUnroll = 4 / Element::kVecs;

/// Pairs of sources get a loop of their own where it pays: the sums of two ranks are by far the most frequent.
template <class Element, class Operation> inline constexpr bool kHasPairLoop = false;
template <class Acc> inline constexpr bool kHasPairLoop<Real<Acc>, Sum> = true;
template <> inline constexpr bool kHasPairLoop<BFloat16, Sum> = true;
template <> inline constexpr bool kHasPairLoop<Float16, Sum> = true;

/// Reduces kUnits vectors at byte `at`; with kUnits = 1 only their first n bytes. kSources = 0: as many as the job says.
template <class Element, class Operation, class Finish, int kSources, int kUnits>
COLLECTIVES_INLINE void reduce_step(const ReduceJob& job, int64_t at, int64_t n, const Finish& finish) {
    using Acc = typename Element::Acc;
    using Lanes = Regs<Acc, Element::kVecs>;
    constexpr bool partial = kUnits == 1;
    auto fetch = [&](const char* src, int unit, Lanes& lanes) __attribute__((always_inline)) {
        const char* p = src + at + unit * kWidth;
        Element::decode(partial ? load_partial(p, n) : load(p), lanes);
    };
    Lanes acc[kUnits];
#pragma GCC unroll 4
    for (int unit = 0; unit < kUnits; ++unit) fetch(job.srcs[0], unit, acc[unit]);
    const int n_srcs = kSources ? kSources : job.n_srcs;
#pragma GCC unroll 1
    for (int k = 1; k < n_srcs; ++k) {
        const char* src = job.srcs[k];
#pragma GCC unroll 4
        for (int unit = 0; unit < kUnits; ++unit) {
            Lanes next;
            fetch(src, unit, next);
#pragma GCC unroll 4
            for (int i = 0; i < Element::kVecs; ++i)
                acc[unit].v[i] = Operation::template apply<Acc>(acc[unit].v[i], next.v[i]);
        }
    }
    Regs<uint32_t, kUnits> out;
#pragma GCC unroll 4
    for (int unit = 0; unit < kUnits; ++unit) {
#pragma GCC unroll 4
        for (int i = 0; i < Element::kVecs; ++i) acc[unit].v[i] = finish(acc[unit].v[i]);
        out.v[unit] = Element::encode(acc[unit]);
    }
#pragma GCC unroll 1
    for (int j = 0; j < job.n_dsts; ++j) {
        char* p = job.dsts[j] + at;
        if constexpr (partial) {
            store_partial(p, out.v[0], n);
        } else if (job.streaming && bytes_to_line(p) % kWidth == 0) {
#pragma GCC unroll 4
            for (int unit = 0; unit < kUnits; ++unit) stream(p + unit * kWidth, out.v[unit]);
        } else {
#pragma GCC unroll 4
            for (int unit = 0; unit < kUnits; ++unit) store(p + unit * kWidth, out.v[unit]);
        }
    }
}

template <class Element, class Operation, class Finish, int kSources>
COLLECTIVES_INLINE void reduce_loop(const ReduceJob& job, const Finish& finish) {
    constexpr int units = kUnroll<Element>;
    constexpr int64_t step_bytes = units * kWidth;
    // Stores that straddle lines cost twice, and cannot be non-temporal: start with the part of a line that is over.
    int64_t head = job.bytes >= 4 * kLineBytes ? bytes_to_line(job.dsts[0]) : 0;
    if ((head & (job.element_bytes - 1)) != 0) head = 0;
    for (int64_t at = 0; at < job.bytes;) {
        if (at >= head)
            for (; units > 1 && at + step_bytes <= job.bytes; at += step_bytes)
                reduce_step<Element, Operation, Finish, kSources, units>(job, at, kWidth, finish);
        const int64_t left = (at < head ? head : job.bytes) - at;
        if (left == 0) return;
        const int64_t n = left < kWidth ? left : kWidth;
        reduce_step<Element, Operation, Finish, kSources, 1>(job, at, n, finish);
        at += n;
    }
}

template <class Element, class Operation, class Finish>
[[gnu::noinline]] void reduce(const ReduceJob& job, double divisor) {
    const Finish finish(divisor);
    if constexpr (kHasPairLoop<Element, Operation>) {
        if (job.n_srcs == 2) {
            const char* const srcs[2] = {job.srcs[0], job.srcs[1]};
            ReduceJob pair = job;
            pair.srcs = srcs;
            reduce_loop<Element, Operation, Finish, 2>(pair, finish);
            if (job.streaming) stream_fence();
            return;
        }
    }
    reduce_loop<Element, Operation, Finish, 0>(job, finish);
    if (job.streaming) stream_fence();
}

/// kBytes: of one element, two lanes for a complex one.
template <class Element, class Operation, template <class> class Finish, int kBytes, Store kStore>
void reduce_entry(void* const* dsts, int n_dsts, const void* const* srcs, int n_srcs, int64_t count,
                  const ReduceArgs& args) {
    using Acc = typename Element::Acc;
    if (count <= 0) return;
    constexpr bool streaming = kStore == Store::streaming;
    const ReduceJob job{reinterpret_cast<char* const*>(dsts), n_dsts, reinterpret_cast<const char* const*>(srcs), n_srcs,
                        count * kBytes, kBytes, streaming};
    if (n_srcs == 1 && __is_same(Finish<Acc>, Keep<Acc>)) {
        // The bits as they are: no NaN is made canonical.
        if (n_dsts > 1) return reduce<Integer<uint32_t>, BitOr, Keep<uint32_t>>(job, 1.0);
        return streaming ? copy_streaming(dsts[0], srcs[0], job.bytes) : copy_plain(dsts[0], srcs[0], job.bytes);
    }
    if constexpr (is_float_lane<Acc>) {
        const FloatMode mode;
        reduce<Element, Operation, Finish<Acc>>(job, args.divisor);
    } else {
        reduce<Element, Operation, Finish<Acc>>(job, args.divisor);
    }
}

} // namespace collectives::kernels::COLLECTIVES_TARGET
