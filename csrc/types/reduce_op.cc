// Names of reduce operations and the sentence that refuses one. The table is in reduce_op.h.
#include "types/reduce_op.h"

namespace collectives {

std::string why_unsupported(ReduceOp op, DType dtype) {
    if (supports(op, dtype))
        return {};
    const ReduceOpInfo& row = info(op);
    return std::string("reduce op '") + row.name + "' is not defined for " + name_of(dtype) + ": it takes " +
           row.takes + "; " + row.why_only + ".";
}

std::optional<ReduceOp> reduce_op_from_name(std::string_view name) {
    auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
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
