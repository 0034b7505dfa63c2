// Element-wise work of the collectives: reduce n sources into m destinations, scale, copy. One set of kernels for each
// SIMD target in one binary, chosen once at run time; all targets give the same bits. Called by algorithms, engine and
// compression; includes only csrc/types.
//
// Floating point, for every target alike:
// - Reductions associate strictly left to right in the order of srcs. No fused multiply-add.
// - float16, bfloat16 and float8 are accumulated in float32 over all sources and rounded once, to nearest even.
//   Out of range: float16, bfloat16 and float8_e5m2 become infinite, float8_e4m3fn (which has no infinity) becomes
//   +-448, infinities included, as torch 2.13 converts.
// - A NaN result is the canonical quiet NaN (0x7fc00000 in float32, 0x7e00, 0x7fc0, 0x7f and 0x7f in the narrow types),
//   whatever the payloads were: which of two payloads survives an addition differs between instructions.
// - A caller's flush-to-zero or rounding mode is set aside for the length of the call, so that every thread of every
//   rank gives the same bits. Denormals are kept.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "types/dtype.h"
#include "types/reduce_op.h"

namespace collectives::kernels {

/// How destinations are written. `streaming`: non-temporal stores of whole 64-byte lines, with a store fence at the
/// end of the call, for targets that nobody on this core will read soon; a flag stored after the call is seen after
/// the data. Heads and tails that share a line with other data are stored plainly.
enum class Store : uint8_t { plain, streaming };

struct ReduceArgs {
    double divisor = 1.0; ///< avg only: the finished sum is divided by it, in the accumulator's width
};

/// dsts[j][i] = srcs[0][i] op ... op srcs[n_srcs - 1][i] for every j. count is in elements; n_srcs, n_dsts >= 1.
/// With one source the bits are copied (avg still divides). A destination may be exactly equal to any source, or to
/// another destination; partial overlap is not allowed. No alignment is needed.
using ReduceFn = void (*)(void* const* dsts, int n_dsts, const void* const* srcs, int n_srcs, int64_t count,
                          const ReduceArgs& args);

/// The kernel of a pair; nullptr where supports(op, dtype) is false. premul_sum gives the kernel of sum: the inputs
/// are to be scaled with scale_fn before.
ReduceFn reduce_fn(ReduceOp op, DType dtype, Store store = Store::plain);

/// dst[i] = src[i] * (factor_re + i factor_im), computed in the accumulator's width (float32 for half-width floats) and
/// rounded once. factor_im must be 0 for real types; where it is 0 a complex element is scaled component by component.
/// dst may be equal to src.
using ScaleFn = void (*)(void* dst, const void* src, int64_t count, double factor_re, double factor_im);

/// The kernel of a dtype; nullptr for integers and bool.
ScaleFn scale_fn(DType dtype);

/// Copies bytes, of any alignment; dst may be equal to src, else they must not overlap.
using CopyFn = void (*)(void* dst, const void* src, int64_t bytes);

CopyFn copy_fn(Store store);

/// The target in use: "avx512", "avx2", "sse2" (the x86-64 baseline) or "generic". Chosen on first use, the fastest
/// that the processor runs.
const char* target_name();

/// Every target that was compiled in and that this processor can run, fastest first.
std::vector<std::string_view> targets();

/// Takes another of targets() from now on; false, with nothing changed, when it is not among them. For tests: function
/// pointers handed out before keep their target.
bool force_target(std::string_view name);

} // namespace collectives::kernels
