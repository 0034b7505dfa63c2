// Kernels of target "sse2": the x86-64 baseline. Compile flags in CMakeLists.txt.
#define COLLECTIVES_TARGET sse2
#define COLLECTIVES_WIDTH 16
#define COLLECTIVES_X86 1
#include "kernels/target_impl.h"

namespace collectives::kernels::sse2 {

const KernelTable& table() {
    static constexpr KernelTable kTable = fill_table("sse2");
    return kTable;
}

} // namespace collectives::kernels::sse2
