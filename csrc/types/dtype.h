// The element types that the library moves and reduces: one table, from which every layer takes name, size and kind.
// Included by every layer above; includes only the standard library. To add a dtype: one enumerator, one row, and its
// kernels (csrc/kernels/traits); the contract suites iterate the table and pick it up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace collectives {

/// Element type of a buffer. The order is part of the wire format (fingerprints carry the number): append only.
enum class DType : uint8_t {
    f64,
    f32,
    f16,
    bf16,
    f8e4m3fn,
    f8e5m2,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
    boolean,
    c64,
    c128,
};

inline constexpr int kDTypeCount = 17;

/// What decides how a type is accumulated and which reduce operations it has.
enum class DTypeKind : uint8_t {
    real_float,   ///< float64, float32: accumulated in their own width
    half_float,   ///< float16, bfloat16, float8: accumulated in float32, rounded once at the end
    signed_int,   ///< two's complement, sums and products wrap
    unsigned_int, ///< sums and products wrap
    boolean,      ///< one byte; any non-zero byte counts as true, results are 0 or 1
    complex,      ///< pairs (real, imaginary) of float32 or float64
};

struct DTypeInfo {
    DType dtype;
    const char* name; ///< as torch spells it, without "torch."
    uint8_t size_bytes;
    DTypeKind kind;
};

inline constexpr std::array<DTypeInfo, kDTypeCount> kDTypes = {{
    {DType::f64, "float64", 8, DTypeKind::real_float},
    {DType::f32, "float32", 4, DTypeKind::real_float},
    {DType::f16, "float16", 2, DTypeKind::half_float},
    {DType::bf16, "bfloat16", 2, DTypeKind::half_float},
    {DType::f8e4m3fn, "float8_e4m3fn", 1, DTypeKind::half_float},
    {DType::f8e5m2, "float8_e5m2", 1, DTypeKind::half_float},
    {DType::i8, "int8", 1, DTypeKind::signed_int},
    {DType::i16, "int16", 2, DTypeKind::signed_int},
    {DType::i32, "int32", 4, DTypeKind::signed_int},
    {DType::i64, "int64", 8, DTypeKind::signed_int},
    {DType::u8, "uint8", 1, DTypeKind::unsigned_int},
    {DType::u16, "uint16", 2, DTypeKind::unsigned_int},
    {DType::u32, "uint32", 4, DTypeKind::unsigned_int},
    {DType::u64, "uint64", 8, DTypeKind::unsigned_int},
    {DType::boolean, "bool", 1, DTypeKind::boolean},
    {DType::c64, "complex64", 8, DTypeKind::complex},
    {DType::c128, "complex128", 16, DTypeKind::complex},
}};

namespace detail {
constexpr bool dtype_rows_in_enum_order() {
    for (int i = 0; i < kDTypeCount; ++i)
        if (static_cast<int>(kDTypes[static_cast<size_t>(i)].dtype) != i)
            return false;
    return true;
}
static_assert(dtype_rows_in_enum_order(), "kDTypes must list the enumerators of DType in their order");
} // namespace detail

/// The row of a dtype. A value outside the enumeration (from untrusted bytes) must be checked with is_dtype first.
constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

/// Bytes of one element.
constexpr size_t size_of(DType dtype) { return info(dtype).size_bytes; }

/// The name as torch spells it, for messages.
constexpr const char* name_of(DType dtype) { return info(dtype).name; }

/// Whether a number taken from the wire is a dtype.
constexpr bool is_dtype(uint8_t value) { return value < kDTypeCount; }

/// The dtype of a name as torch spells it ("float32", also with "torch." before it); nothing when there is none.
std::optional<DType> dtype_from_name(std::string_view name);

} // namespace collectives
