// Names of dtypes. Called where a dtype arrives as a string; the tables are in dtype.h.
#include "types/dtype.h"

namespace collectives {

std::optional<DType> dtype_from_name(std::string_view name) {
    constexpr std::string_view prefix = "torch.";
    if (name.substr(0, prefix.size()) == prefix)
        name.remove_prefix(prefix.size());
    for (const DTypeInfo& row : kDTypes)
        if (name == row.name)
            return row.dtype;
    return std::nullopt;
}

} // namespace collectives
