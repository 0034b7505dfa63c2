// A c10::Allocator whose memory peers can reach (Node::allocate): collectives on its tensors move no extra copy.
// Included by the other bindings only.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>

namespace collectives {

/// The allocator of this process; lives as long as the process. Throws c10::OutOfMemoryError when the heap is full.
c10::Allocator* shared_allocator();

/// The same for interfaces that share ownership.
std::shared_ptr<c10::Allocator> shared_allocator_handle();

/// A zeroed, resizable, one-dimensional CPU tensor of `count` elements in shared memory.
at::Tensor empty_shared(int64_t count, at::ScalarType dtype);

} // namespace collectives
