// Fills the table of one SIMD target from the templates. Included only by target_*.cc, which say which target (simd.h).
// To add a dtype: an element in element.h and one line of fill_table.
#pragma once

#include "kernels/reduce_impl.h"
#include "kernels/scale_impl.h"
#include "kernels/table.h"

namespace collectives::kernels::COLLECTIVES_TARGET {

template <class Element, class Operation, int kBytes, template <class> class Finish = Keep>
constexpr void set_reduce(KernelTable& table, ReduceOp op, DType dtype) {
    ReduceFn(&row)[2] = table.reduce[static_cast<int>(op)][static_cast<int>(dtype)];
    row[static_cast<int>(Store::plain)] = reduce_entry<Element, Operation, Finish, kBytes, Store::plain>;
    row[static_cast<int>(Store::streaming)] = reduce_entry<Element, Operation, Finish, kBytes, Store::streaming>;
}

template <class Element, int kBytes> constexpr void fill_float(KernelTable& table, DType dtype) {
    set_reduce<Element, Sum, kBytes>(table, ReduceOp::sum, dtype);
    set_reduce<Element, Sum, kBytes, Divide>(table, ReduceOp::avg, dtype);
    set_reduce<Element, Product, kBytes>(table, ReduceOp::product, dtype);
    set_reduce<Element, Min, kBytes>(table, ReduceOp::min, dtype);
    set_reduce<Element, Max, kBytes>(table, ReduceOp::max, dtype);
    set_reduce<Element, Sum, kBytes>(table, ReduceOp::premul_sum, dtype);
    table.scale[static_cast<int>(dtype)] = scale_entry<Element, kBytes>;
}

/// Sums act on real and imaginary parts alike.
template <class T> constexpr void fill_complex(KernelTable& table, DType dtype) {
    constexpr int bytes = 2 * sizeof(T);
    set_reduce<Real<T>, Sum, bytes>(table, ReduceOp::sum, dtype);
    set_reduce<Real<T>, Sum, bytes, Divide>(table, ReduceOp::avg, dtype);
    set_reduce<Real<T>, ComplexProduct, bytes>(table, ReduceOp::product, dtype);
    set_reduce<Real<T>, Sum, bytes>(table, ReduceOp::premul_sum, dtype);
    table.scale[static_cast<int>(dtype)] = scale_complex_entry<T>;
}

/// Signed and unsigned share all but the two operations that compare; bits know no width.
template <class Compared, class Wrapping> constexpr void fill_integer(KernelTable& table, DType dtype) {
    constexpr int bytes = sizeof(Wrapping);
    set_reduce<Integer<Wrapping>, Sum, bytes>(table, ReduceOp::sum, dtype);
    set_reduce<Integer<Wrapping>, Product, bytes>(table, ReduceOp::product, dtype);
    set_reduce<Integer<Compared>, Min, bytes>(table, ReduceOp::min, dtype);
    set_reduce<Integer<Compared>, Max, bytes>(table, ReduceOp::max, dtype);
    set_reduce<Integer<uint32_t>, BitAnd, bytes>(table, ReduceOp::band, dtype);
    set_reduce<Integer<uint32_t>, BitOr, bytes>(table, ReduceOp::bor, dtype);
    set_reduce<Integer<uint32_t>, BitXor, bytes>(table, ReduceOp::bxor, dtype);
}

constexpr void fill_boolean(KernelTable& table) {
    set_reduce<Boolean, BitOr, 1>(table, ReduceOp::sum, DType::boolean);
    set_reduce<Boolean, BitAnd, 1>(table, ReduceOp::product, DType::boolean);
    set_reduce<Boolean, BitAnd, 1>(table, ReduceOp::min, DType::boolean);
    set_reduce<Boolean, BitOr, 1>(table, ReduceOp::max, DType::boolean);
    set_reduce<Boolean, BitAnd, 1>(table, ReduceOp::band, DType::boolean);
    set_reduce<Boolean, BitOr, 1>(table, ReduceOp::bor, DType::boolean);
    set_reduce<Boolean, BitXor, 1>(table, ReduceOp::bxor, DType::boolean);
}

constexpr KernelTable fill_table(const char* name) {
    KernelTable table{};
    table.name = name;
    fill_float<Real<double>, 8>(table, DType::f64);
    fill_float<Real<float>, 4>(table, DType::f32);
    fill_float<Float16, 2>(table, DType::f16);
    fill_float<BFloat16, 2>(table, DType::bf16);
    fill_float<Float8E4M3FN, 1>(table, DType::f8e4m3fn);
    fill_float<Float8E5M2, 1>(table, DType::f8e5m2);
    fill_integer<int8_t, uint8_t>(table, DType::i8);
    fill_integer<int16_t, uint16_t>(table, DType::i16);
    fill_integer<int32_t, uint32_t>(table, DType::i32);
    fill_integer<int64_t, uint64_t>(table, DType::i64);
    fill_integer<uint8_t, uint8_t>(table, DType::u8);
    fill_integer<uint16_t, uint16_t>(table, DType::u16);
    fill_integer<uint32_t, uint32_t>(table, DType::u32);
    fill_integer<uint64_t, uint64_t>(table, DType::u64);
    fill_boolean(table);
    fill_complex<float>(table, DType::c64);
    fill_complex<double>(table, DType::c128);
    table.copy[static_cast<int>(Store::plain)] = copy_plain;
    table.copy[static_cast<int>(Store::streaming)] = copy_streaming;
    return table;
}

} // namespace collectives::kernels::COLLECTIVES_TARGET
