// The reduce kernels: any number of sources into any number of destinations in one pass, each source read once and each
// destination written once, partial sums in registers. Included only by target_impl.h, within a target (see simd.h).
#pragma once

#include "kernels/copy_impl.h"
#include "kernels/element.h"
#include "kernels/float_mode.h"
#include "kernels/operation.h"
#include "kernels/table.h"

namespace collectives::kernels::COLLECTIVES_TARGET {

/// What one call works on. Offsets are in bytes from the start of every buffer.
struct ReduceJob {
    void* const* dsts;
    int n_dsts;
    const void* const* srcs;
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
    explicit COLLECTIVES_INLINE Divide(double divisor) : factor_(static_cast<Acc>(divisor)) {
        // A positive number of a moderate exponent without mantissa bits: the reciprocal is exact.
        const auto bits = __builtin_bit_cast(uint64_t, divisor);
        exact_ = (bits & ((uint64_t{1} << 52) - 1)) == 0 && divisor >= 0x1p-60 && divisor <= 0x1p60;
        if (exact_)
            factor_ = Acc{1} / factor_;
    }
    COLLECTIVES_INLINE Vec<Acc> operator()(Vec<Acc> x) const {
        const Vec<Acc> factor = splat(factor_);
        return exact_ ? x * factor : x / factor;
    }

  private:
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

/// Sources read side by side. More of them would, where their addresses agree modulo the size of a cache way (staging
/// slots do), push each other out of the first-level cache before the line is used up: 64 sources of 256 KiB, all at
/// once, ran at 0.7 of the speed that groups of 8 reach.
inline constexpr int kGroup = 8;

/// Partial sums of one block of elements, between the groups of sources.
template <class Element> struct alignas(kLineBytes) PartialSums {
    using Lanes = Regs<typename Element::Acc, Element::kVecs>;
    static constexpr int kUnits = 4096 / static_cast<int>(sizeof(Lanes));
    static constexpr int64_t kBlockBytes = kUnits * kWidth; ///< of storage
    Lanes lanes[kUnits];
};

/// A group of the job's sources over a range of bytes. With sums, the group continues from them unless it is the first,
/// and leaves its result there unless it is the last.
template <class Element> struct Part {
    int64_t begin, end;
    int first_src, last_src;
    PartialSums<Element>* sums;
};

/// Reduces kUnits vectors at byte `at`; with kUnits = 1 only their first n bytes. kPair: the part is all of two sources.
template <class Element, class Operation, class Finish, bool kPair, int kUnits>
COLLECTIVES_INLINE void reduce_step(const ReduceJob& job, const Part<Element>& part, int64_t at, int64_t n,
                                    const Finish& finish) {
    using Acc = typename Element::Acc;
    using Lanes = Regs<Acc, Element::kVecs>;
    constexpr bool partial = kUnits == 1;
    auto fetch = [&](const char* src, int unit, Lanes& lanes) __attribute__((always_inline)) {
        const char* p = src + at + unit * kWidth;
        Element::decode(partial ? load_partial(p, n) : load(p), lanes);
    };
    Lanes* sums = kPair || part.sums == nullptr ? nullptr : part.sums->lanes + (at - part.begin) / kWidth;
    Lanes acc[kUnits];
    int k = kPair ? 0 : part.first_src;
    const int last_src = kPair ? 2 : part.last_src;
    if (sums != nullptr && k > 0) {
#pragma GCC unroll 4
        for (int unit = 0; unit < kUnits; ++unit) acc[unit] = sums[unit];
    } else {
        const auto* src = static_cast<const char*>(job.srcs[k++]);
#pragma GCC unroll 4
        for (int unit = 0; unit < kUnits; ++unit) fetch(src, unit, acc[unit]);
    }
#pragma GCC unroll 1
    for (; k < last_src; ++k) {
        const auto* src = static_cast<const char*>(job.srcs[k]);
#pragma GCC unroll 4
        for (int unit = 0; unit < kUnits; ++unit) {
            Lanes next;
            fetch(src, unit, next);
#pragma GCC unroll 4
            for (int i = 0; i < Element::kVecs; ++i)
                acc[unit].v[i] = Operation::template apply<Acc>(acc[unit].v[i], next.v[i]);
        }
    }
    if (sums != nullptr && last_src < job.n_srcs) {
#pragma GCC unroll 4
        for (int unit = 0; unit < kUnits; ++unit) sums[unit] = acc[unit];
        return;
    }
    Regs<uint32_t, kUnits> out;
#pragma GCC unroll 4
    for (int unit = 0; unit < kUnits; ++unit) {
#pragma GCC unroll 4
        for (int i = 0; i < Element::kVecs; ++i) acc[unit].v[i] = finish(acc[unit].v[i]);
        out.v[unit] = Element::encode(acc[unit]);
    }
    int j = 0;
    do { // there is at least one: the compiler need not think of none
        char* p = static_cast<char*>(job.dsts[j]) + at;
        if constexpr (partial) {
            store_partial(p, out.v[0], n);
        } else if (job.streaming && bytes_to_line(p) % kWidth == 0) {
#pragma GCC unroll 4
            for (int unit = 0; unit < kUnits; ++unit) stream(p + unit * kWidth, out.v[unit]);
        } else {
#pragma GCC unroll 4
            for (int unit = 0; unit < kUnits; ++unit) store(p + unit * kWidth, out.v[unit]);
        }
    } while (++j < job.n_dsts);
}

template <class Element, class Operation, class Finish, bool kPair>
[[gnu::noinline]] void reduce_part(const ReduceJob& shared_job, const Part<Element>& shared_part,
                                   const Finish& shared_finish) {
    // Copies of our own: the stores below could otherwise change the originals, as far as the compiler knows.
    const ReduceJob job = shared_job;
    const Part<Element> part = shared_part;
    const Finish finish = shared_finish;
    constexpr int units = kUnroll<Element>;
    constexpr int64_t step_bytes = units * kWidth;
    int64_t at = part.begin;
    if constexpr (units > 1)
        for (; at + step_bytes <= part.end; at += step_bytes)
            reduce_step<Element, Operation, Finish, kPair, units>(job, part, at, kWidth, finish);
    for (; at < part.end; at += kWidth) {
        const int64_t left = part.end - at;
        reduce_step<Element, Operation, Finish, kPair, 1>(job, part, at, left < kWidth ? left : kWidth, finish);
    }
}

/// More sources than a group: block by block, with partial sums that stay in the first-level cache.
template <class Element, class Operation, class Finish>
[[gnu::noinline]] void reduce_many(const ReduceJob& job, int64_t begin, const Finish& finish) {
    PartialSums<Element> sums;
    for (int64_t at = begin; at < job.bytes; at += sums.kBlockBytes) {
        const int64_t end = at + sums.kBlockBytes < job.bytes ? at + sums.kBlockBytes : job.bytes;
        for (int k = 0; k < job.n_srcs; k += kGroup) {
            const int last = k + kGroup < job.n_srcs ? k + kGroup : job.n_srcs;
            reduce_part<Element, Operation, Finish, false>(job, Part<Element>{at, end, k, last, &sums}, finish);
        }
    }
}

template <class Element, class Operation, class Finish>
[[gnu::noinline]] void reduce(const ReduceJob& job, double divisor) {
    const Finish finish(divisor);
    // Stores that straddle lines cost twice, and cannot be non-temporal: start with the part of a line that is over.
    int64_t head = job.bytes >= 4 * kLineBytes ? bytes_to_line(job.dsts[0]) : 0;
    if ((head & (job.element_bytes - 1)) != 0)
        head = 0;
    auto run = [&]<bool kPair>(int64_t begin, int64_t end) {
        reduce_part<Element, Operation, Finish, kPair>(job, Part<Element>{begin, end, 0, job.n_srcs, nullptr}, finish);
    };
    constexpr bool has_pair_loop = kHasPairLoop<Element, Operation>;
    if (has_pair_loop && job.n_srcs == 2) {
        if (head)
            run.template operator()<has_pair_loop>(0, head);
        run.template operator()<has_pair_loop>(head, job.bytes);
    } else {
        if (head)
            run.template operator()<false>(0, head);
        if (job.n_srcs <= kGroup)
            run.template operator()<false>(head, job.bytes);
        else
            reduce_many<Element, Operation, Finish>(job, head, finish);
    }
    if (job.streaming)
        stream_fence();
}

/// kBytes: of one element, two lanes for a complex one.
template <class Element, class Operation, template <class> class Finish, int kBytes, Store kStore>
void reduce_entry(void* const* dsts, int n_dsts, const void* const* srcs, int n_srcs, int64_t count,
                  const ReduceArgs& args) {
    using Acc = typename Element::Acc;
    if (count <= 0)
        return;
    constexpr bool streaming = kStore == Store::streaming;
    const ReduceJob job{dsts, n_dsts, srcs, n_srcs, count * kBytes, kBytes, streaming};
    if (n_srcs == 1 && __is_same(Finish<Acc>, Keep<Acc>)) {
        // The bits as they are: no NaN is made canonical.
        if (n_dsts > 1)
            return reduce<Integer<uint32_t>, BitOr, Keep<uint32_t>>(job, 1.0);
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
