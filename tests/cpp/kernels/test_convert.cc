// Conversions of the narrow floats, scaling, copies and the choice of targets.
#include <array>
#include <bit>
#include <string>

#include <doctest/doctest.h>

#include "kernels/kernels.h"
#include "kernels/reference.h"

using namespace collectives;
using namespace collectives::kernels;
using reference::Bytes;

namespace {

/// Runs body once for each target and restores the one in use.
template <class Body> void on_every_target(Body body) {
    const std::string before = target_name();
    for (std::string_view target : targets()) {
        REQUIRE(force_target(target));
        CAPTURE(target);
        body(target);
    }
    force_target(before);
}

/// Every pattern of a narrow float, as bytes.
Bytes all_patterns(DType dtype) {
    const size_t size = size_of(dtype);
    Bytes out(size << (8 * size));
    for (uint32_t pattern = 0; pattern < out.size() / size; ++pattern)
        std::memcpy(out.data() + pattern * size, &pattern, size);
    return out;
}

uint32_t pattern_at(const Bytes& bytes, size_t size, size_t i) {
    uint32_t pattern = 0;
    std::memcpy(&pattern, bytes.data() + i * size, size);
    return pattern;
}

} // namespace

TEST_CASE("reference: conversions give the bits that torch 2.13 gives") {
    struct Row {
        float value;
        uint32_t f16, bf16, e4m3fn, e5m2;
    };
    // From torch.tensor(values).to(dtype); of a NaN in bfloat16 torch's scalar code gives this, its vector code 0xffff.
    const Row rows[] = {
        {0x0p+0f, 0x0000, 0x0000, 0x00, 0x00},
        {-0x0p+0f, 0x8000, 0x8000, 0x80, 0x80},
        {0x1p+0f, 0x3c00, 0x3f80, 0x38, 0x3c},
        {-0x1.8p+0f, 0xbe00, 0xbfc0, 0xbc, 0xbe},
        {0x1.555556p-2f, 0x3555, 0x3eab, 0x2b, 0x35},
        {0x1.99999ap-4f, 0x2e66, 0x3dcd, 0x1d, 0x2e},
        {0x1.bfp+8f, 0x5efc, 0x43e0, 0x7e, 0x5f},
        {0x1.cp+8f, 0x5f00, 0x43e0, 0x7e, 0x5f},
        {0x1.c1p+8f, 0x5f04, 0x43e0, 0x7e, 0x5f},
        {0x1.cfp+8f, 0x5f3c, 0x43e8, 0x7e, 0x5f},
        {0x1.dp+8f, 0x5f40, 0x43e8, 0x7e, 0x5f},
        {0x1.d1p+8f, 0x5f44, 0x43e8, 0x7e, 0x5f},
        {0x1.ep+8f, 0x5f80, 0x43f0, 0x7e, 0x60},
        {-0x1.ep+8f, 0xdf80, 0xc3f0, 0xfe, 0xe0},
        {0x1.dcd65p+29f, 0x7c00, 0x4e6e, 0x7e, 0x7c},
        {std::numeric_limits<float>::infinity(), 0x7c00, 0x7f80, 0x7e, 0x7c},
        {-std::numeric_limits<float>::infinity(), 0xfc00, 0xff80, 0xfe, 0xfc},
        {std::numeric_limits<float>::quiet_NaN(), 0x7e00, 0x7fc0, 0x7f, 0x7f},
        {0x1.ffcp+15f, 0x7bff, 0x4780, 0x7e, 0x7c},
        {0x1.ffdffep+15f, 0x7bff, 0x4780, 0x7e, 0x7c},
        {0x1.ffep+15f, 0x7c00, 0x4780, 0x7e, 0x7c},
        {0x1.cp+15f, 0x7b00, 0x4760, 0x7e, 0x7b},
        {0x1.dffep+15f, 0x7b80, 0x4770, 0x7e, 0x7b},
        {0x1.ep+15f, 0x7b80, 0x4770, 0x7e, 0x7c},
        {-0x1.e002p+15f, 0xfb80, 0xc770, 0xfe, 0xfc},
        {0x1p-6f, 0x2400, 0x3c80, 0x08, 0x24},
        {0x1.0f5c28p-6f, 0x243d, 0x3c88, 0x08, 0x24},
        {0x1.fd70a4p-7f, 0x23f6, 0x3c7f, 0x08, 0x24},
        {0x1p-9f, 0x1800, 0x3b00, 0x01, 0x18},
        {0x1p-10f, 0x1400, 0x3a80, 0x00, 0x14},
        {0x1.028f5cp-10f, 0x140a, 0x3a81, 0x01, 0x14},
        {0x1.8p-9f, 0x1a00, 0x3b40, 0x02, 0x1a},
        {0x1p-14f, 0x0400, 0x3880, 0x00, 0x04},
        {0x1.ffbe76p-15f, 0x03ff, 0x3880, 0x00, 0x04},
        {0x1p-16f, 0x0100, 0x3780, 0x00, 0x01},
        {0x1p-17f, 0x0080, 0x3700, 0x00, 0x00},
        {0x1.028f5cp-17f, 0x0081, 0x3701, 0x00, 0x01},
        {0x1p-24f, 0x0001, 0x3380, 0x00, 0x00},
        {0x1p-25f, 0x0000, 0x3300, 0x00, 0x00},
        {0x1.00068ep-25f, 0x0001, 0x3300, 0x00, 0x00},
        {0x1.8p-24f, 0x0002, 0x33c0, 0x00, 0x00},
        {0x1.4484cp-100f, 0x0000, 0x0da2, 0x00, 0x00},
        {0x1.16c2p-133f, 0x0000, 0x0001, 0x00, 0x00},
        {-0x1p-149f, 0x8000, 0x8000, 0x80, 0x80},
        {0x1.fdfecap+127f, 0x7c00, 0x7f7f, 0x7e, 0x7c},
        {0x1.ff933cp+127f, 0x7c00, 0x7f80, 0x7e, 0x7c},
        {0x1.01p+0f, 0x3c04, 0x3f80, 0x38, 0x3c},
        {0x1.03p+0f, 0x3c0c, 0x3f82, 0x38, 0x3c},
        {0x1.002p+11f, 0x6800, 0x4500, 0x7e, 0x68},
        {0x1.006p+11f, 0x6802, 0x4500, 0x7e, 0x68},
    };
    for (const Row& row : rows) {
        CAPTURE(row.value);
        CHECK(reference::encode(reference::format_of(DType::f16), row.value) == row.f16);
        CHECK(reference::encode(reference::format_of(DType::bf16), row.value) == row.bf16);
        CHECK(reference::encode(reference::format_of(DType::f8e4m3fn), row.value) == row.e4m3fn);
        CHECK(reference::encode(reference::format_of(DType::f8e5m2), row.value) == row.e5m2);
    }
}

TEST_CASE("scale: every pattern of the narrow floats times many factors") {
    std::mt19937_64 random(7);
    std::vector<double> factors = {1.0, -1.0, 0.0, 0.5, 2.0, 1.0 / 3, 1e-3, 1e3, 1e-7, 1e38, 0x1p-14, 0x1p-24};
    factors.push_back(std::numeric_limits<double>::infinity());
    factors.push_back(std::numeric_limits<double>::quiet_NaN());
    for (int i = 0; i < 30; ++i) factors.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    for (DType dtype : {DType::f16, DType::bf16, DType::f8e4m3fn, DType::f8e5m2}) {
        const reference::Format format = reference::format_of(dtype);
        const size_t size = size_of(dtype);
        const Bytes in = all_patterns(dtype);
        const size_t count = in.size() / size;
        for (double factor : factors) {
            std::vector<uint32_t> expected(count);
            for (size_t i = 0; i < count; ++i)
                expected[i] = reference::encode(format, reference::decode(format, pattern_at(in, size, i)) *
                                                            static_cast<float>(factor));
            on_every_target([&](std::string_view) {
                Bytes out(in.size());
                scale_fn(dtype)(out.data(), in.data(), static_cast<int64_t>(count), factor, 0.0);
                size_t wrong = 0, first = 0;
                for (size_t i = 0; i < count; ++i)
                    if (pattern_at(out, size, i) != expected[i] && wrong++ == 0)
                        first = i;
                CAPTURE(name_of(dtype));
                CAPTURE(factor);
                CAPTURE(first);
                CAPTURE(expected[first]);
                CAPTURE(pattern_at(out, size, first));
                CHECK(wrong == 0);
            });
        }
    }
}

TEST_CASE("scale: wide floats and complex numbers, any length and alignment, in place") {
    auto check = [&]<class T>(T, DType dtype, double re, double im) {
        const bool complex = info(dtype).kind == DTypeKind::complex;
        for (size_t count : {0, 1, 3, 7, 64, 333}) {
            const Bytes in = reference::interesting(dtype, count, 5);
            Bytes expected = in;
            const size_t lanes = in.size() / sizeof(T);
            auto lane = [&](size_t i) { return reference::from_bytes<T>(in.data() + i * sizeof(T)); };
            for (size_t i = 0; i < lanes; ++i) {
                T value = lane(i) * static_cast<T>(re);
                if (complex && im != 0)
                    value = i % 2 == 0 ? lane(i) * static_cast<T>(re) - lane(i + 1) * static_cast<T>(im)
                                       : lane(i - 1) * static_cast<T>(im) + lane(i) * static_cast<T>(re);
                reference::to_bytes(expected.data() + i * sizeof(T), reference::canonical(value));
            }
            on_every_target([&](std::string_view) {
                for (size_t offset : {0, 1, 4}) {
                    Bytes buffer(in.size() + 16, 0x5a);
                    if (count)
                        std::memcpy(buffer.data() + offset, in.data(), in.size());
                    unsigned char* p = buffer.data() + offset;
                    scale_fn(dtype)(p, p, static_cast<int64_t>(count), re, im);
                    CAPTURE(name_of(dtype));
                    CAPTURE(count);
                    CHECK((count == 0 || std::memcmp(p, expected.data(), in.size()) == 0));
                    for (size_t i = in.size() + offset; i < buffer.size(); ++i) CHECK(buffer[i] == 0x5a);
                }
            });
        }
    };
    for (double re : {1.0, 0.3, -2.5e-3}) {
        check(float{}, DType::f32, re, 0.0);
        check(double{}, DType::f64, re, 0.0);
        for (double im : {0.0, 1.75}) {
            check(float{}, DType::c64, re, im);
            check(double{}, DType::c128, re, im);
        }
    }
}

TEST_CASE("scale: there is none for integers and bool") {
    on_every_target([](std::string_view) {
        for (const DTypeInfo& row : kDTypes)
            CHECK((scale_fn(row.dtype) != nullptr) == supports(ReduceOp::premul_sum, row.dtype));
    });
}

TEST_CASE("copy: every small length and alignment, and long ones, leave all else alone") {
    Bytes src(70000);
    for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<unsigned char>(i * 31 + i / 256);
    on_every_target([&](std::string_view) {
        for (Store store : {Store::plain, Store::streaming}) {
            auto copies = [&](size_t bytes, size_t dst_offset, size_t src_offset) {
                Bytes dst(bytes + 256, 0x11);
                copy_fn(store)(dst.data() + dst_offset, src.data() + src_offset, static_cast<int64_t>(bytes));
                bool right = bytes == 0 || std::memcmp(dst.data() + dst_offset, src.data() + src_offset, bytes) == 0;
                for (size_t i = 0; i < dst.size(); ++i)
                    if ((i < dst_offset || i >= dst_offset + bytes) && dst[i] != 0x11)
                        right = false;
                return right;
            };
            bool right = true;
            for (size_t bytes = 0; bytes < 700; ++bytes)
                for (size_t offset : {0, 1, 8, 63}) right = right && copies(bytes, offset, (offset * 7) % 64);
            CHECK(right);
            for (size_t bytes : {4096, 4097, 65536, 69000}) CHECK(copies(bytes, 5, 64));
        }
    });
}

TEST_CASE("targets: the fastest is taken, each can be forced, others are refused") {
    const std::string before = target_name();
    REQUIRE(!targets().empty());
    CHECK(targets().back() == "generic");
    for (std::string_view target : targets()) {
        CHECK(force_target(target));
        CHECK(target_name() == target);
    }
    CHECK_FALSE(force_target("mmx"));
    CHECK(target_name() == targets().back());
    force_target(before);
}
