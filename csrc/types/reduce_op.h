// The reduce operations and the one table that says which dtypes each takes, and why it refuses the others.
// Included by every layer above; includes only csrc/types and the standard library. docs/dtypes.md shows the table and
// a test holds the two together.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "types/dtype.h"

namespace collectives {

/// How elements of several ranks become one. The order is part of the wire format: append only.
enum class ReduceOp : uint8_t { sum, avg, product, min, max, band, bor, bxor, premul_sum };

inline constexpr int kReduceOpCount = 9;

/// A set of DTypeKind, one bit each.
using DTypeKinds = uint8_t;

constexpr DTypeKinds kind_bit(DTypeKind kind) { return static_cast<DTypeKinds>(1u << static_cast<unsigned>(kind)); }

namespace kinds {
inline constexpr DTypeKinds floats = kind_bit(DTypeKind::real_float) | kind_bit(DTypeKind::half_float);
inline constexpr DTypeKinds ints = kind_bit(DTypeKind::signed_int) | kind_bit(DTypeKind::unsigned_int);
inline constexpr DTypeKinds boolean = kind_bit(DTypeKind::boolean);
inline constexpr DTypeKinds complex = kind_bit(DTypeKind::complex);
} // namespace kinds

struct ReduceOpInfo {
    ReduceOp op;
    const char* name;
    DTypeKinds kinds;     ///< the kinds of dtype that it takes
    const char* takes;    ///< those kinds in words, for messages
    const char* why_only; ///< why no others, and what to use instead
};

/// bool: sum is "or", product is "and", min is "and", max is "or".
/// min and max: a NaN in any input gives NaN; -0 is smaller than +0.
/// avg: the sum, divided by the world size after the last addition. premul_sum: the sum of inputs scaled before it.
inline constexpr std::array<ReduceOpInfo, kReduceOpCount> kReduceOps = {{
    {ReduceOp::sum, "sum", kinds::floats | kinds::ints | kinds::boolean | kinds::complex, "every dtype", ""},
    {ReduceOp::avg, "avg", kinds::floats | kinds::complex, "floating-point and complex dtypes",
     "an average is in general no integer: use sum and divide with the rounding you want, or convert to a float dtype"},
    {ReduceOp::product, "product", kinds::floats | kinds::ints | kinds::boolean | kinds::complex, "every dtype", ""},
    {ReduceOp::min, "min", kinds::floats | kinds::ints | kinds::boolean, "real dtypes",
     "complex numbers have no order: reduce the real view, or the absolute value"},
    {ReduceOp::max, "max", kinds::floats | kinds::ints | kinds::boolean, "real dtypes",
     "complex numbers have no order: reduce the real view, or the absolute value"},
    {ReduceOp::band, "band", kinds::ints | kinds::boolean, "integer dtypes and bool",
     "bits of a floating-point number do not combine to a number: view the tensor as an integer dtype if you mean "
     "bits"},
    {ReduceOp::bor, "bor", kinds::ints | kinds::boolean, "integer dtypes and bool",
     "bits of a floating-point number do not combine to a number: view the tensor as an integer dtype if you mean "
     "bits"},
    {ReduceOp::bxor, "bxor", kinds::ints | kinds::boolean, "integer dtypes and bool",
     "bits of a floating-point number do not combine to a number: view the tensor as an integer dtype if you mean "
     "bits"},
    {ReduceOp::premul_sum, "premul_sum", kinds::floats | kinds::complex, "floating-point and complex dtypes",
     "the factor is a floating-point number, whose product with an integer would be rounded: use sum and scale "
     "yourself"},
}};

namespace detail {
constexpr bool reduce_op_rows_in_enum_order() {
    for (int i = 0; i < kReduceOpCount; ++i)
        if (static_cast<int>(kReduceOps[static_cast<size_t>(i)].op) != i)
            return false;
    return true;
}
static_assert(reduce_op_rows_in_enum_order(), "kReduceOps must list the enumerators of ReduceOp in their order");
} // namespace detail

/// The row of an operation. A number from the wire must be checked with is_reduce_op first.
constexpr const ReduceOpInfo& info(ReduceOp op) { return kReduceOps[static_cast<size_t>(op)]; }

/// The name, for messages.
constexpr const char* name_of(ReduceOp op) { return info(op).name; }

/// Whether a number taken from the wire is a reduce operation.
constexpr bool is_reduce_op(uint8_t value) { return value < kReduceOpCount; }

/// Whether the operation is defined for the dtype.
constexpr bool supports(ReduceOp op, DType dtype) { return (info(op).kinds & kind_bit(info(dtype).kind)) != 0; }

/// What to say of a name that no operation has: the one that was probably meant, and those there are.
std::string why_unknown_reduce_op(std::string_view name);

/// One sentence that says why the pair is refused and what to do; empty when it is supported.
std::string why_unsupported(ReduceOp op, DType dtype);

/// The operation of a name ("sum", "SUM"); nothing when there is none.
std::optional<ReduceOp> reduce_op_from_name(std::string_view name);

} // namespace collectives
