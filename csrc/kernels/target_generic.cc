// Kernels of target "generic": the compiler's vectors without intrinsics: NEON on aarch64; on x86-64 built to be tested there. Compile flags in CMakeLists.txt.
#define COLLECTIVES_TARGET generic
#define COLLECTIVES_WIDTH 16
#define COLLECTIVES_X86 0
#include "kernels/target_impl.h"

namespace collectives::kernels::generic {

const KernelTable& table() {
    static constexpr KernelTable kTable = fill_table("generic");
    return kTable;
}

} // namespace collectives::kernels::generic
