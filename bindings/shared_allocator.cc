// torch memory from the node's shared heap. See shared_allocator.h.
#include "bindings/shared_allocator.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstring>

#include "bindings/communicator.h"
#include "bindings/errors.h"

namespace collectives {
namespace {

void free_shared(void* data) {
    if (data == nullptr)
        return;
    Node* node = nullptr;
    // The memory came from the node, so there is one. After its shutdown the heap still takes memory back.
    if (process_node(&node).ok())
        node->deallocate(data);
}

class SharedAllocator final : public c10::Allocator {
  public:
    c10::DataPtr allocate(size_t bytes) override {
        const c10::Device device(c10::DeviceType::CPU);
        if (bytes == 0)
            return {nullptr, nullptr, &free_shared, device};
        Node* node = nullptr;
        throw_c10d(process_node(&node));
        void* data = node->allocate(bytes);
        if (data == nullptr)
            TORCH_CHECK_WITH(OutOfMemoryError, false, "collectives: no room for ", bytes, " bytes in the shared heap (",
                             node->heap_used_bytes(), " of ", node->heap_bytes(),
                             " bytes are in use); free tensors made by collectives.empty or allocateTensor, or set the "
                             "environment variable COLLECTIVES_HEAP_BYTES to more before the program starts");
        return {data, data, &free_shared, device};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &free_shared; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

} // namespace

c10::Allocator* shared_allocator() {
    static auto* const allocator = new SharedAllocator; // never destroyed: tensors may outlive every static object
    return allocator;
}

std::shared_ptr<c10::Allocator> shared_allocator_handle() {
    return {shared_allocator(), [](c10::Allocator*) {}};
}

at::Tensor empty_shared(int64_t count, at::ScalarType dtype) {
    const std::array<int64_t, 1> sizes = {count};
    return at::Tensor(at::detail::empty_generic(sizes, shared_allocator(), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                dtype, std::nullopt));
}

} // namespace collectives
