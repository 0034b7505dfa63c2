// Whether tensors that an operation writes to share memory. Included by the c10d part of the bindings only.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

namespace collectives {

/// The positions (smaller first) of two tensors that share an element; none: all lie apart. Exact: interleaved tensors,
/// such as the columns of a matrix, lie apart. Costs a sort where no two spans of addresses meet, and a look at every
/// element of those that do.
std::optional<std::pair<size_t, size_t>> find_overlap(const std::vector<at::Tensor>& tensors);

} // namespace collectives
