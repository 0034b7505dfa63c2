// Speed of the kernels on one core: GB/s of bytes read and written. Not a test. Build it by hand or with the target
// bench_kernels; arguments: [target] [bytes of one buffer, default a sweep].
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/kernels.h"

using namespace collectives;
using namespace collectives::kernels;

namespace {

char* aligned_buffer(size_t bytes) {
    auto* p = static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    std::memset(p, 0x3c, bytes); // an ordinary positive number in every float type
    return p;
}

/// Median seconds of one call, over batches of at least 20 us.
template <class Call> double seconds_of(Call call) {
    using Clock = std::chrono::steady_clock;
    auto batch = [&](int64_t calls) {
        const auto start = Clock::now();
        for (int64_t i = 0; i < calls; ++i) call();
        return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(calls);
    };
    const double once = std::max(batch(3), 1e-9);
    const auto calls = std::max<int64_t>(1, static_cast<int64_t>(2e-5 / once));
    std::vector<double> times;
    for (int i = 0; i < 31; ++i) times.push_back(batch(calls));
    std::nth_element(times.begin(), times.begin() + 15, times.end());
    return times[15];
}

void print_row(const std::string& what, int64_t bytes, int streams, double seconds) {
    std::printf("  %-34s %10lld B %9.3f us %7.1f GB/s\n", what.c_str(), static_cast<long long>(bytes), seconds * 1e6,
                static_cast<double>(bytes) * streams / seconds * 1e-9);
}

void bench_reduce(ReduceOp op, DType dtype, Store store, int n_srcs, int n_dsts, int64_t bytes) {
    std::vector<void*> dsts;
    std::vector<const void*> srcs;
    for (int i = 0; i < n_srcs; ++i) srcs.push_back(aligned_buffer(static_cast<size_t>(bytes)));
    for (int i = 0; i < n_dsts; ++i) dsts.push_back(aligned_buffer(static_cast<size_t>(bytes)));
    ReduceArgs args;
    args.divisor = n_srcs == 2 ? 2 : 3;
    const ReduceFn fn = reduce_fn(op, dtype, store);
    const int64_t count = bytes / static_cast<int64_t>(size_of(dtype));
    const double seconds = seconds_of([&] { fn(dsts.data(), n_dsts, srcs.data(), n_srcs, count, args); });
    const std::string what = std::string(name_of(op)) + " " + name_of(dtype) + " " + std::to_string(n_srcs) + "->" +
                             std::to_string(n_dsts) + (store == Store::plain ? "" : " streaming");
    print_row(what, bytes, n_srcs + n_dsts, seconds);
    for (void* p : dsts) std::free(p);
    for (const void* p : srcs) std::free(const_cast<void*>(p));
}

void bench_copy(int64_t bytes) {
    char* src = aligned_buffer(static_cast<size_t>(bytes));
    char* dst = aligned_buffer(static_cast<size_t>(bytes));
    for (Store store : {Store::plain, Store::streaming}) {
        const CopyFn fn = copy_fn(store);
        print_row(store == Store::plain ? "copy" : "copy streaming", bytes, 2,
                  seconds_of([&] { fn(dst, src, bytes); }));
    }
    std::free(src);
    std::free(dst);
}

void bench_all(int64_t bytes) {
    bench_copy(bytes);
    for (Store store : {Store::plain, Store::streaming})
        for (int n_dsts : {1, 2}) bench_reduce(ReduceOp::sum, DType::f32, store, 2, n_dsts, bytes);
    for (int n_srcs : {3, 4, 8, 16, 64})
        if (bytes * n_srcs <= int64_t{1} << 30)
            bench_reduce(ReduceOp::sum, DType::f32, Store::plain, n_srcs, 1, bytes);
    for (ReduceOp op : {ReduceOp::avg, ReduceOp::product, ReduceOp::max})
        bench_reduce(op, DType::f32, Store::plain, 2, 1, bytes);
    bench_reduce(ReduceOp::avg, DType::f32, Store::plain, 3, 1, bytes);
    for (DType dtype : {DType::f64, DType::bf16, DType::f16, DType::f8e4m3fn, DType::f8e5m2, DType::i8, DType::i64})
        bench_reduce(ReduceOp::sum, dtype, Store::plain, 2, 1, bytes);
    bench_reduce(ReduceOp::product, DType::i8, Store::plain, 2, 1, bytes);
    bench_reduce(ReduceOp::product, DType::i64, Store::plain, 2, 1, bytes);
    bench_reduce(ReduceOp::product, DType::c64, Store::plain, 2, 1, bytes);
}

} // namespace

int main(int argc, char** argv) {
    if (argc > 1 && !force_target(argv[1])) {
        std::fprintf(stderr, "no target '%s' on this processor; there are:", argv[1]);
        for (std::string_view name : targets())
            std::fprintf(stderr, " %.*s", static_cast<int>(name.size()), name.data());
        std::fprintf(stderr, "\n");
        return 2;
    }
    std::printf("target %s; bytes are of one buffer, GB/s count every buffer read or written\n", target_name());
    if (argc > 2) {
        bench_all(std::atoll(argv[2]));
        return 0;
    }
    for (int64_t bytes : {int64_t{8}, int64_t{64}, int64_t{1} << 10, int64_t{16} << 10, int64_t{256} << 10,
                          int64_t{4} << 20, int64_t{64} << 20})
        bench_all(bytes);
    return 0;
}
