// Names of reduce operations and the sentence that refuses one. The table is in reduce_op.h.
#include "types/reduce_op.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace collectives {
namespace {

/// What other libraries call the same.
constexpr std::pair<std::string_view, ReduceOp> kOtherNames[] = {
    {"add", ReduceOp::sum},          {"plus", ReduceOp::sum},       {"mean", ReduceOp::avg},
    {"average", ReduceOp::avg},      {"mul", ReduceOp::product},    {"multiply", ReduceOp::product},
    {"times", ReduceOp::product},    {"and", ReduceOp::band},       {"bitwise_and", ReduceOp::band},
    {"or", ReduceOp::bor},           {"bitwise_or", ReduceOp::bor}, {"xor", ReduceOp::bxor},
    {"bitwise_xor", ReduceOp::bxor},
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// How many letters must change, come or go to make one out of the other.
size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t(0));
    for (size_t i = 0; i < a.size(); ++i) {
        size_t diagonal = std::exchange(row[0], i + 1);
        for (size_t j = 0; j < b.size(); ++j) {
            const size_t changed = diagonal + (a[i] != b[j]);
            diagonal = std::exchange(row[j + 1], std::min({changed, row[j] + 1, row[j + 1] + 1}));
        }
    }
    return row.back();
}

/// The operation that a wrong name is close to: another name of it, its beginning, a longer form, a slip.
std::optional<ReduceOp> meant(std::string_view name) {
    for (const auto& [other, op] : kOtherNames)
        if (other == name)
            return op;
    for (const ReduceOpInfo& row : kReduceOps) {
        const std::string_view known = row.name;
        const bool begins = name.size() >= 3 && (known.starts_with(name) || name.starts_with(known));
        if (begins || edit_distance(name, known) <= known.size() / 3)
            return row.op;
    }
    return std::nullopt;
}

} // namespace

std::string why_unknown_reduce_op(std::string_view name) {
    std::string small(name);
    std::transform(small.begin(), small.end(), small.begin(), lower);
    auto spelled = [](ReduceOp op) {
        return op == ReduceOp::premul_sum ? "(\"premul_sum\", factor)" : "\"" + std::string(name_of(op)) + "\"";
    };
    std::string text;
    if (const std::optional<ReduceOp> probably = small.size() <= 32 ? meant(small) : std::nullopt)
        text = "Did you mean " + spelled(*probably) + "? ";
    text += "Known are ";
    for (const ReduceOpInfo& row : kReduceOps) text += (row.op == kReduceOps[0].op ? "" : ", ") + spelled(row.op);
    return text + ".";
}

std::string why_unsupported(ReduceOp op, DType dtype) {
    if (supports(op, dtype))
        return {};
    const ReduceOpInfo& row = info(op);
    return std::string("reduce op '") + row.name + "' is not defined for " + name_of(dtype) + ": it takes " +
           row.takes + "; " + row.why_only + ".";
}

std::optional<ReduceOp> reduce_op_from_name(std::string_view name) {
    for (const ReduceOpInfo& row : kReduceOps) {
        const std::string_view candidate = row.name;
        bool equal = candidate.size() == name.size();
        for (size_t i = 0; equal && i < name.size(); ++i) equal = lower(name[i]) == candidate[i];
        if (equal)
            return row.op;
    }
    return std::nullopt;
}

} // namespace collectives
