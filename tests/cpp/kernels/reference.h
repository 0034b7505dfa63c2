// A plain scalar reference of the reduce and scale kernels, by arithmetic rather than by bit tricks, so that the two can
// not share a mistake. Included by the tests of csrc/kernels only.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "types/dtype.h"
#include "types/reduce_op.h"

namespace collectives::kernels::reference {

using Bytes = std::vector<unsigned char>;

template <class T> T from_bytes(const void* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

template <class T> void to_bytes(void* p, T value) { std::memcpy(p, &value, sizeof value); }

struct Format {
    int exponent_bits, mantissa_bits;
    bool has_infinity;
    uint32_t nan; ///< canonical pattern
};

inline Format format_of(DType dtype) {
    switch (dtype) {
    case DType::f16: return {5, 10, true, 0x7e00};
    case DType::bf16: return {8, 7, true, 0x7fc0};
    case DType::f8e4m3fn: return {4, 3, false, 0x7f};
    case DType::f8e5m2: return {5, 2, true, 0x7f};
    default: throw std::logic_error("not a narrow float");
    }
}

/// The number of a pattern.
inline float decode(Format f, uint32_t pattern) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const uint32_t mantissa = pattern & ((1u << f.mantissa_bits) - 1);
    const int exponent = static_cast<int>(pattern >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
    const bool negative = (pattern >> (f.exponent_bits + f.mantissa_bits)) != 0;
    const bool top = exponent == (1 << f.exponent_bits) - 1;
    double value;
    if (f.has_infinity && top)
        value = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    else if (top && mantissa == (1u << f.mantissa_bits) - 1)
        value = std::numeric_limits<double>::quiet_NaN();
    else if (exponent == 0)
        value = std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
    else
        value = std::ldexp(mantissa + (1u << f.mantissa_bits), exponent - bias - f.mantissa_bits);
    return static_cast<float>(negative ? -value : value);
}

/// The nearest pattern, ties to even; NaN canonical; out of range as torch 2.13 converts.
inline uint32_t encode(Format f, float value) {
    if (std::isnan(value))
        return f.nan;
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const uint32_t sign = std::signbit(value) ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    const uint32_t top = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    const uint32_t past_largest = f.has_infinity ? top : top | ((1u << f.mantissa_bits) - 1);
    const uint32_t out_of_range = f.has_infinity ? top : past_largest - 1;
    if (std::isinf(value))
        return sign | out_of_range;
    if (magnitude == 0)
        return sign;
    int exponent = std::ilogb(magnitude);
    exponent = exponent < 1 - bias ? 1 - bias : exponent;
    const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
    // units counts from 2^mantissa_bits in a normal binade; a carry to the next one comes out right by addition.
    const double pattern = std::ldexp(exponent - (1 - bias), f.mantissa_bits) + units;
    return sign | (pattern >= past_largest ? out_of_range : static_cast<uint32_t>(pattern));
}

template <class T> T canonical(T x) { return std::isnan(x) ? std::numeric_limits<T>::quiet_NaN() : x; }

template <class T> T combine_float(ReduceOp op, T a, T b) {
    switch (op) {
    case ReduceOp::product: return a * b;
    case ReduceOp::min:
    case ReduceOp::max: {
        if (std::isnan(a) || std::isnan(b))
            return std::numeric_limits<T>::quiet_NaN();
        const bool a_first = a < b || (a == b && std::signbit(a));
        return (op == ReduceOp::min) == a_first ? a : b;
    }
    default: return a + b;
    }
}

template <class T> T combine_int(ReduceOp op, T a, T b) {
    const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
    switch (op) {
    case ReduceOp::product: return static_cast<T>(ua * ub);
    case ReduceOp::min: return a < b ? a : b;
    case ReduceOp::max: return a < b ? b : a;
    case ReduceOp::band: return static_cast<T>(ua & ub);
    case ReduceOp::bor: return static_cast<T>(ua | ub);
    case ReduceOp::bxor: return static_cast<T>(ua ^ ub);
    default: return static_cast<T>(ua + ub);
    }
}

inline bool combine_bool(ReduceOp op, bool a, bool b) {
    switch (op) {
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::band: return a && b;
    case ReduceOp::bxor: return a != b;
    default: return a || b;
    }
}

/// Sources are contiguous buffers of count elements; at(k) is element i of source k.
template <class At> void reduce_element(ReduceOp op, DType dtype, int n, double divisor, At at, void* out) {
    auto real = [&]<class T>(T) {
        T acc = from_bytes<T>(at(0));
        for (int k = 1; k < n; ++k) acc = combine_float<T>(op, acc, from_bytes<T>(at(k)));
        if (op == ReduceOp::avg)
            acc = acc / static_cast<T>(divisor);
        to_bytes(out, canonical(acc));
    };
    auto complex = [&]<class T>(T) {
        auto part = [&](int k, int i) { return from_bytes<T>(at(k) + i * sizeof(T)); };
        T re = part(0, 0), im = part(0, 1);
        for (int k = 1; k < n; ++k) {
            const T br = part(k, 0), bi = part(k, 1);
            const T next_re = op == ReduceOp::product ? re * br - im * bi : re + br;
            im = op == ReduceOp::product ? re * bi + im * br : im + bi;
            re = next_re;
        }
        if (op == ReduceOp::avg)
            re = re / static_cast<T>(divisor), im = im / static_cast<T>(divisor);
        to_bytes(out, canonical(re));
        to_bytes(static_cast<char*>(out) + sizeof(T), canonical(im));
    };
    auto integer = [&]<class T>(T) {
        T acc = from_bytes<T>(at(0));
        for (int k = 1; k < n; ++k) acc = combine_int<T>(op, acc, from_bytes<T>(at(k)));
        to_bytes(out, acc);
    };
    auto narrow = [&]<class T>(T) {
        const Format format = format_of(dtype);
        float acc = decode(format, from_bytes<T>(at(0)));
        for (int k = 1; k < n; ++k) acc = combine_float<float>(op, acc, decode(format, from_bytes<T>(at(k))));
        if (op == ReduceOp::avg)
            acc = acc / static_cast<float>(divisor);
        to_bytes(out, static_cast<T>(encode(format, acc)));
    };
    switch (dtype) {
    case DType::f64: return real(double{});
    case DType::f32: return real(float{});
    case DType::f16:
    case DType::bf16: return narrow(uint16_t{});
    case DType::f8e4m3fn:
    case DType::f8e5m2: return narrow(uint8_t{});
    case DType::i8: return integer(int8_t{});
    case DType::i16: return integer(int16_t{});
    case DType::i32: return integer(int32_t{});
    case DType::i64: return integer(int64_t{});
    case DType::u8: return integer(uint8_t{});
    case DType::u16: return integer(uint16_t{});
    case DType::u32: return integer(uint32_t{});
    case DType::u64: return integer(uint64_t{});
    case DType::boolean: {
        bool acc = *at(0) != 0;
        for (int k = 1; k < n; ++k) acc = combine_bool(op, acc, *at(k) != 0);
        return to_bytes<uint8_t>(out, acc);
    }
    case DType::c64: return complex(float{});
    case DType::c128: return complex(double{});
    }
}

inline Bytes reduce(ReduceOp op, DType dtype, const std::vector<Bytes>& srcs, int n, size_t count, double divisor) {
    const size_t size = size_of(dtype);
    Bytes out(count * size);
    if (n == 1 && op != ReduceOp::avg) {
        if (count)
            std::memcpy(out.data(), srcs[0].data(), out.size());
        return out;
    }
    for (size_t i = 0; i < count; ++i) {
        auto at = [&](int k) { return srcs[static_cast<size_t>(k)].data() + i * size; };
        reduce_element(op, dtype, n, divisor, at, out.data() + i * size);
    }
    return out;
}

/// Bytes that make half of the elements special (signed zeros, infinities, NaN of both kinds, denormals, ones, extremes)
/// and the rest uniform bits or numbers near one.
inline Bytes interesting(DType dtype, size_t count, uint64_t seed) {
    const size_t size = size_of(dtype);
    Bytes out(count * size);
    std::mt19937_64 random(seed);
    const bool is_complex = info(dtype).kind == DTypeKind::complex;
    const size_t lane = is_complex ? size / 2 : size;
    for (size_t at = 0; at + lane <= out.size(); at += lane) {
        const uint64_t bits = random();
        const uint64_t kind = random() % 4;
        uint64_t value = bits;
        if (kind == 0) {
            // Sign, exponent field all ones or zeros or middling, few mantissa bits: specials of every format.
            const uint64_t fields[] = {0,
                                       ~uint64_t{0},
                                       0x7f80000000000000u,
                                       0x7ff0000000000000u,
                                       0x7c00000000000000u,
                                       0x3f80000000000000u,
                                       0x3ff0000000000000u,
                                       0x3c00000000000000u,
                                       0x7fc0000000000000u,
                                       0x7ff8000000000000u,
                                       0x7e00000000000000u};
            value = (fields[bits % 11] >> (64 - 8 * lane)) ^ (uint64_t{(bits >> 40) & 1} << (8 * lane - 1));
            if (bits >> 41 & 1)
                value ^= (bits >> 50) % 4;
        } else if (kind == 1 && lane == 4) {
            value = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(bits)) * 0x1p-62f);
        } else if (kind == 1 && lane == 8) {
            value = std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-62);
        }
        std::memcpy(out.data() + at, &value, lane);
    }
    return out;
}

} // namespace collectives::kernels::reference
