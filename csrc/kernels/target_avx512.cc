// Kernels of target "avx512": AVX-512 F, BW, DQ and VL. Compile flags in CMakeLists.txt.
#define COLLECTIVES_TARGET avx512
#define COLLECTIVES_WIDTH 64
#define COLLECTIVES_X86 3
#include "kernels/target_impl.h"

namespace collectives::kernels::avx512 {

const KernelTable& table() {
    static constexpr KernelTable kTable = fill_table("avx512");
    return kTable;
}

} // namespace collectives::kernels::avx512
