// Chooses the kernel table once, by what the processor and the operating system support, and hands out its functions.
// Implements kernels.h; compiled for the baseline.
#include <atomic>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/table.h"

namespace collectives::kernels {
namespace {

#if defined(__x86_64__)
bool has_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

/// __builtin_cpu_supports also asks whether the operating system saves the wide registers.
bool runs_avx2() { return __builtin_cpu_supports("avx2") && has_f16c(); }

bool runs_avx512() {
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

bool runs_always() { return true; }

struct Target {
    const KernelTable& (*table)();
    bool (*runs)();
};

/// Fastest first; the last one runs everywhere.
constexpr Target kTargets[] = {
#if defined(__x86_64__)
    {avx512::table, runs_avx512},
    {avx2::table, runs_avx2},
    {sse2::table, runs_always},
#endif
    {generic::table, runs_always},
};

const KernelTable* fastest() {
    for (const Target& target : kTargets)
        if (target.runs())
            return &target.table();
    __builtin_unreachable(); // the last row runs always
}

std::atomic<const KernelTable*>& chosen() {
    static std::atomic<const KernelTable*> table{fastest()};
    return table;
}

const KernelTable& current() { return *chosen().load(std::memory_order_acquire); }

} // namespace

ReduceFn reduce_fn(ReduceOp op, DType dtype, Store store) {
    return current().reduce[static_cast<int>(op)][static_cast<int>(dtype)][static_cast<int>(store)];
}

ScaleFn scale_fn(DType dtype) { return current().scale[static_cast<int>(dtype)]; }

CopyFn copy_fn(Store store) { return current().copy[static_cast<int>(store)]; }

const char* target_name() { return current().name; }

std::vector<std::string_view> targets() {
    std::vector<std::string_view> names;
    for (const Target& target : kTargets)
        if (target.runs())
            names.emplace_back(target.table().name);
    return names;
}

bool force_target(std::string_view name) {
    for (const Target& target : kTargets) {
        if (!target.runs() || name != target.table().name)
            continue;
        chosen().store(&target.table(), std::memory_order_release);
        return true;
    }
    return false;
}

} // namespace collectives::kernels
