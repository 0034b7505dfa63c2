// Kernels of target "avx2": AVX2 with F16C. Compile flags in CMakeLists.txt.
#define COLLECTIVES_TARGET avx2
#define COLLECTIVES_WIDTH 32
#define COLLECTIVES_X86 2
#include "kernels/target_impl.h"

namespace collectives::kernels::avx2 {

const KernelTable& table() {
    static constexpr KernelTable kTable = fill_table("avx2");
    return kTable;
}

} // namespace collectives::kernels::avx2
