// The reduce kernels: every dtype, operation and target against the scalar reference, bit for bit, over numbers of
// sources and destinations, lengths, alignments, stores and in-place forms. Prints the case that fails.
#include <bit>
#include <string>

#include <doctest/doctest.h>

#include "kernels/kernels.h"
#include "kernels/reference.h"

using namespace collectives;
using namespace collectives::kernels;
using reference::Bytes;

namespace {

constexpr unsigned char kGuard = 0xa5;
constexpr size_t kPad = 128;

/// A buffer that starts `offset` bytes past a line, with guard bytes on both sides.
class Buffer {
  public:
    Buffer(size_t bytes, size_t offset) : storage_(bytes + 3 * kPad, kGuard), bytes_(bytes) {
        const auto address = reinterpret_cast<uintptr_t>(storage_.data());
        start_ = kPad - address % 64 + offset;
    }
    unsigned char* data() { return storage_.data() + start_; }
    void fill(const Bytes& from) {
        if (bytes_)
            std::memcpy(data(), from.data(), bytes_);
    }
    bool holds(const Bytes& expected) { return bytes_ == 0 || std::memcmp(data(), expected.data(), bytes_) == 0; }
    bool guards_intact() const {
        for (size_t i = 0; i < storage_.size(); ++i)
            if ((i < start_ || i >= start_ + bytes_) && storage_[i] != kGuard)
                return false;
        return true;
    }

  private:
    std::vector<unsigned char> storage_;
    size_t bytes_, start_;
};

struct Case {
    ReduceOp op;
    DType dtype;
    int n_srcs;
    size_t count;
    double divisor;
    std::vector<Bytes> inputs;
    Bytes expected;
};

/// How buffers lie: bytes past a line of destination 0, step to the next destination, of the sources.
struct Layout {
    size_t dst_offset, dst_step, src_offset;
    int n_dsts;
    int in_place; ///< destination 0 is this source; -1: none
};

std::string run_case(const Case& c, Store store, const Layout& layout) {
    const size_t bytes = c.count * size_of(c.dtype);
    std::vector<Buffer> srcs, dsts;
    for (int k = 0; k < c.n_srcs; ++k) {
        srcs.emplace_back(bytes, layout.src_offset * static_cast<size_t>(k % 3));
        srcs.back().fill(c.inputs[static_cast<size_t>(k)]);
    }
    for (int j = 0; j < layout.n_dsts; ++j)
        dsts.emplace_back(bytes, (layout.dst_offset + layout.dst_step * static_cast<size_t>(j)) % 64);
    std::vector<const void*> src_pointers;
    std::vector<void*> dst_pointers;
    for (Buffer& src : srcs) src_pointers.push_back(src.data());
    for (Buffer& dst : dsts) dst_pointers.push_back(dst.data());
    if (layout.in_place >= 0)
        dst_pointers[0] = srcs[static_cast<size_t>(layout.in_place)].data();

    ReduceArgs args;
    args.divisor = c.divisor;
    reduce_fn(c.op, c.dtype, store)(dst_pointers.data(), layout.n_dsts, src_pointers.data(), c.n_srcs,
                                    static_cast<int64_t>(c.count), args);

    for (int j = 0; j < layout.n_dsts; ++j) {
        Buffer& dst =
            j == 0 && layout.in_place >= 0 ? srcs[static_cast<size_t>(layout.in_place)] : dsts[static_cast<size_t>(j)];
        if (!dst.holds(c.expected))
            return "destination " + std::to_string(j) + " is wrong";
        if (!dst.guards_intact())
            return "destination " + std::to_string(j) + ": bytes outside were written";
    }
    for (int k = 0; k < c.n_srcs; ++k) {
        Buffer& src = srcs[static_cast<size_t>(k)];
        if (k != layout.in_place && !src.holds(c.inputs[static_cast<size_t>(k)]))
            return "a source was changed";
        if (!src.guards_intact())
            return "bytes around a source were changed";
    }
    return {};
}

void check_pair(ReduceOp op, DType dtype) {
    const size_t size = size_of(dtype);
    const Layout layouts[] = {{0, 0, 0, 1, -1},       {0, 0, 0, 2, -1},  {size, 0, 0, 1, -1},
                              {0, size, size, 2, -1}, {1, 3, 1, 3, -1},  {32, 0, 16, 2, -1},
                              {0, 0, 0, 1, 0},        {16, 16, 0, 2, 0}, {size, 2 * size, size, 4, 99}};
    for (int n_srcs : {1, 2, 3, 5, 8, 9, 19}) {
        for (size_t count : {0, 1, 7, 64, 1000}) {
            Case c{op, dtype, n_srcs, count, static_cast<double>(n_srcs), {}, {}};
            for (int k = 0; k < n_srcs; ++k)
                c.inputs.push_back(reference::interesting(dtype, count, count * 100 + static_cast<size_t>(k)));
            c.expected = reference::reduce(op, dtype, c.inputs, n_srcs, count, c.divisor);
            for (std::string_view target : targets()) {
                REQUIRE(force_target(target));
                for (Store store : {Store::plain, Store::streaming}) {
                    for (Layout layout : layouts) {
                        if (layout.in_place == 99)
                            layout.in_place = n_srcs - 1;
                        const std::string error = run_case(c, store, layout);
                        if (error.empty())
                            continue;
                        FAIL_CHECK(name_of(op), " ", name_of(dtype), " on ", target, ", ", n_srcs, " sources, ", count,
                                   " elements, ", store == Store::plain ? "plain" : "streaming", ", ", layout.n_dsts,
                                   " destinations at ", layout.dst_offset, ", in place ", layout.in_place, ": ", error);
                        return;
                    }
                }
            }
        }
    }
}

} // namespace

TEST_CASE("reduce: every dtype, operation and target gives the reference's bits") {
    const std::string before = target_name();
    for (const ReduceOpInfo& op : kReduceOps)
        for (const DTypeInfo& dtype : kDTypes)
            if (supports(op.op, dtype.dtype))
                check_pair(op.op, dtype.dtype);
    force_target(before);
}

TEST_CASE("reduce: a kernel exists exactly where the table says") {
    const std::string before = target_name();
    for (std::string_view target : targets()) {
        REQUIRE(force_target(target));
        for (const ReduceOpInfo& op : kReduceOps)
            for (const DTypeInfo& dtype : kDTypes)
                for (Store store : {Store::plain, Store::streaming}) {
                    CAPTURE(op.name);
                    CAPTURE(dtype.name);
                    CHECK((reduce_fn(op.op, dtype.dtype, store) != nullptr) == supports(op.op, dtype.dtype));
                }
    }
    force_target(before);
}

TEST_CASE("reduce: an average by any divisor is the correctly rounded quotient") {
    const std::string before = target_name();
    for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::f8e5m2, DType::c64}) {
        for (double divisor : {1.0, 2.0, 3.0, 7.0, 64.0, 1e30, 0x1p-3, 0x1p100}) {
            Case c{ReduceOp::avg, dtype, 2, 257, divisor, {}, {}};
            for (uint64_t k = 0; k < 2; ++k) c.inputs.push_back(reference::interesting(dtype, c.count, 40 + k));
            c.expected = reference::reduce(c.op, dtype, c.inputs, 2, c.count, divisor);
            for (std::string_view target : targets()) {
                REQUIRE(force_target(target));
                CAPTURE(target);
                CAPTURE(divisor);
                CAPTURE(name_of(dtype));
                CHECK(run_case(c, Store::plain, {0, 0, 0, 1, -1}) == "");
            }
        }
    }
    force_target(before);
}

TEST_CASE("reduce: sources associate from left to right, narrow floats in float32") {
    auto reduce3 = [](DType dtype, auto a, auto b, auto c) {
        const void* srcs[] = {&a, &b, &c};
        void* dsts[] = {&a};
        reduce_fn(ReduceOp::sum, dtype)(dsts, 1, srcs, 3, 1, {});
        return a;
    };
    CHECK(reduce3(DType::f32, 1e30f, -1e30f, 1.0f) == 1.0f);
    CHECK(reduce3(DType::f32, 1.0f, 1e30f, -1e30f) == 0.0f);
    // 256 + 1 + 1 in bfloat16 would stay 256 if each sum were rounded: 257 is a tie that goes to even.
    CHECK(reduce3(DType::bf16, uint16_t{0x4380}, uint16_t{0x3f80}, uint16_t{0x3f80}) == 0x4381);
    // 60000 + 60000 - 60000 in float16 would be infinite.
    CHECK(reduce3(DType::f16, uint16_t{0x7b53}, uint16_t{0x7b53}, uint16_t{0xfb53}) == 0x7b53);
}

#if defined(__x86_64__)
#include <xmmintrin.h>
TEST_CASE("reduce: a caller's flush-to-zero and rounding mode neither act nor are lost") {
    const std::string before = target_name();
    for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::f8e4m3fn, DType::c128}) {
        Case c{ReduceOp::avg, dtype, 3, 333, 3.0, {}, {}};
        for (uint64_t k = 0; k < 3; ++k) c.inputs.push_back(reference::interesting(dtype, c.count, k));
        c.expected = reference::reduce(c.op, dtype, c.inputs, 3, c.count, 3.0);
        for (std::string_view target : targets()) {
            REQUIRE(force_target(target));
            for (unsigned mode : {0x8040u, 0x4000u, 0x6000u}) {
                const unsigned saved = _mm_getcsr();
                _mm_setcsr(saved | mode);
                const std::string error = run_case(c, Store::plain, {0, 0, 0, 1, -1});
                const unsigned after = _mm_getcsr();
                _mm_setcsr(saved);
                CAPTURE(target);
                CHECK(error == "");
                CHECK((after & 0xe040u) == mode);
            }
        }
    }
    force_target(before);
}
#endif
