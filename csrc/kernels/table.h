// What one SIMD target provides: a plain table of function pointers, filled at compile time in target_*.cc and chosen
// from at run time in dispatch.cc. Included by those only.
#pragma once

#include "kernels/kernels.h"

namespace collectives::kernels {

struct KernelTable {
    const char* name;
    ReduceFn reduce[kReduceOpCount][kDTypeCount][2]; ///< the last index is Store; nullptr where not supported
    ScaleFn scale[kDTypeCount];
    CopyFn copy[2]; ///< by Store
};

namespace generic {
const KernelTable& table();
}
#if defined(__x86_64__)
namespace sse2 {
const KernelTable& table();
}
namespace avx2 {
const KernelTable& table();
}
namespace avx512 {
const KernelTable& table();
}
#endif

} // namespace collectives::kernels
