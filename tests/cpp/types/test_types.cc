// The tables of dtypes and reduce operations, and docs/dtypes.md, which shows them.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "types/dtype.h"
#include "types/reduce_op.h"

using namespace collectives;

TEST_CASE("dtype: names lead back to their dtype, with and without torch's prefix") {
    for (const DTypeInfo& row : kDTypes) {
        CHECK(dtype_from_name(row.name) == row.dtype);
        CHECK(dtype_from_name(std::string("torch.") + row.name) == row.dtype);
        CHECK(size_of(row.dtype) == row.size_bytes);
        CHECK(is_dtype(static_cast<uint8_t>(row.dtype)));
    }
    CHECK(size_of(DType::c128) == 16);
    CHECK(size_of(DType::f8e5m2) == 1);
    CHECK_FALSE(dtype_from_name("float").has_value());
    CHECK_FALSE(dtype_from_name("").has_value());
    CHECK_FALSE(dtype_from_name("torch.").has_value());
    CHECK_FALSE(is_dtype(kDTypeCount));
}

TEST_CASE("reduce_op: names in either case") {
    for (const ReduceOpInfo& row : kReduceOps) CHECK(reduce_op_from_name(row.name) == row.op);
    CHECK(reduce_op_from_name("PREMUL_SUM") == ReduceOp::premul_sum);
    CHECK_FALSE(reduce_op_from_name("mean").has_value());
    CHECK_FALSE(reduce_op_from_name("su").has_value());
    CHECK_FALSE(is_reduce_op(kReduceOpCount));
}

TEST_CASE("reduce_op: an unknown name is told what was probably meant, and what there is") {
    const std::pair<const char*, const char*> slips[] = {
        {"prod", "\"product\""},    {"PROD", "\"product\""},
        {"mean", "\"avg\""},        {"average", "\"avg\""},
        {"summ", "\"sum\""},        {"mul", "\"product\""},
        {"maximum", "\"max\""},     {"and", "\"band\""},
        {"prodcut", "\"product\""}, {"premul_sum", "(\"premul_sum\", factor)"},
    };
    for (const auto& [slip, meant] : slips) {
        CAPTURE(slip);
        CHECK(why_unknown_reduce_op(slip).starts_with("Did you mean " + std::string(meant) + "? Known are \"sum\", "));
    }
    for (const char* nothing_close : {"", "x", "median", "logsumexp"})
        CHECK(why_unknown_reduce_op(nothing_close).starts_with("Known are \"sum\", \"avg\", \"product\", "));
    for (const ReduceOpInfo& row : kReduceOps)
        CHECK(why_unknown_reduce_op("median").find(row.name) != std::string::npos);
}

TEST_CASE("reduce_op: what is supported, and a reason where not") {
    for (const DTypeInfo& row : kDTypes) {
        const bool inexact =
            row.kind == DTypeKind::real_float || row.kind == DTypeKind::half_float || row.kind == DTypeKind::complex;
        CAPTURE(row.name);
        CHECK(supports(ReduceOp::sum, row.dtype));
        CHECK(supports(ReduceOp::product, row.dtype));
        CHECK(supports(ReduceOp::avg, row.dtype) == inexact);
        CHECK(supports(ReduceOp::premul_sum, row.dtype) == inexact);
        CHECK(supports(ReduceOp::min, row.dtype) == (row.kind != DTypeKind::complex));
        CHECK(supports(ReduceOp::max, row.dtype) == (row.kind != DTypeKind::complex));
        for (ReduceOp op : {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) CHECK(supports(op, row.dtype) == !inexact);
        for (const ReduceOpInfo& op : kReduceOps) {
            const std::string reason = why_unsupported(op.op, row.dtype);
            CHECK(reason.empty() == supports(op.op, row.dtype));
            if (reason.empty())
                continue;
            CHECK(reason.find(op.name) != std::string::npos);
            CHECK(reason.find(row.name) != std::string::npos);
            CHECK(reason.back() == '.');
        }
    }
}

TEST_CASE("docs/dtypes.md shows exactly the tables") {
    // ctest says where the sources are; a compiler cache may have made __FILE__ relative to another folder.
    const char* given = std::getenv("COLLECTIVES_SOURCE_DIR");
    const auto root = given ? std::filesystem::path(given)
                            : std::filesystem::path(__FILE__).parent_path().parent_path().parent_path().parent_path();
    std::ifstream file(root / "docs" / "dtypes.md");
    REQUIRE_MESSAGE(file.good(), "docs/dtypes.md cannot be opened from ", root.string());
    std::ostringstream expected;
    expected << "| dtype | bytes |";
    for (const ReduceOpInfo& op : kReduceOps) expected << " " << op.name << " |";
    expected << "\n|---|---|";
    for (int i = 0; i < kReduceOpCount; ++i) expected << "---|";
    expected << "\n";
    for (const DTypeInfo& row : kDTypes) {
        expected << "| " << row.name << " | " << int{row.size_bytes} << " |";
        for (const ReduceOpInfo& op : kReduceOps) expected << (supports(op.op, row.dtype) ? " yes |" : " |");
        expected << "\n";
    }
    std::string table, line;
    while (std::getline(file, line))
        if (!line.empty() && line[0] == '|')
            table += line + "\n";
    CHECK_MESSAGE(table == expected.str(), "the table of docs/dtypes.md should be\n", expected.str());
}
