// From c10d's tensors to the engine's Call: checks each tensor, packs what is strided, and names the argument in every
// error. Included by the c10d bindings only.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/call.h"
#include "bindings/c10d_work.h"

namespace collectives {

/// Which argument of which operation an error is about: operation "all_gather", argument "output_tensors", index 2.
struct Argument {
    const char* operation;
    const char* name;
    int64_t index = -1;

    std::string text() const; // "all_gather: output_tensors[2]"
};

/// True when the engine can use the tensor's own memory: on the CPU, dense, contiguous, with values stored as they are.
bool is_plain(const at::Tensor& tensor);

/// The dtype of a tensor that the library can handle. Throws c10::ValueError for another device, layout or dtype.
DType check_tensor(const at::Tensor& tensor, const Argument& argument);

/// The library's name of c10d's reduce operation. Throws c10::ValueError for UNUSED.
ReduceOp reduce_op_of(const c10d::ReduceOp& op, const char* operation);

/// One operation under construction. Everything that takes a tensor throws c10::ValueError where it cannot be used.
class Operation {
  public:
    Operation(Collective kind, c10d::OpType type, const char* operation, const char* title);
    Operation(const Operation&) = delete;
    Operation(Operation&&) = default;

    /// Sets the reduce operation, with the factor of PREMUL_SUM.
    void set_reduce_op(const c10d::ReduceOp& op);
    void set_root(int64_t root, int world_size);

    /// Memory with the tensor's values; a packed copy where the tensor is strided.
    void* read(const at::Tensor& tensor, const Argument& argument);
    /// Memory for the tensor's new values, which are copied into it at the end where it is strided.
    void* write(const at::Tensor& tensor, const Argument& argument);
    /// Memory that holds the values and takes the new ones.
    void* update(const at::Tensor& tensor, const Argument& argument);

    /// One block, or one block a tensor.
    void set_in(void* data, int64_t count);
    void set_out(void* data, int64_t count);
    void add_in(void* data, int64_t count);
    void add_out(void* data, int64_t count);
    /// One block for each tensor of a list, in its order.
    void read_list(const std::vector<at::Tensor>& list, const char* argument);
    void write_list(const std::vector<at::Tensor>& list, const char* argument);
    /// Adjacent blocks of these sizes.
    void set_in(void* data, std::vector<int64_t> counts);
    void set_out(void* data, std::vector<int64_t> counts);

    /// The call for the engine; valid while this object stays where it is.
    const Call& call();

    const char* name() const { return name_; }
    Completion completion;

  private:
    void check_dtype(const at::Tensor& tensor, const Argument& argument);

    Call call_;
    const char* name_;
    bool has_dtype_ = false;
    Argument dtype_from_{"", ""}; // the argument that the dtype was taken from
    c10::SmallVector<void*, 4> in_ptrs_;
    c10::SmallVector<void*, 4> out_ptrs_;
    std::vector<int64_t> in_counts_;
    std::vector<int64_t> out_counts_;
};

/// all_gather and reduce_scatter of flat tensors; `index` names them in a list of several (-1: they are alone).
Operation flat_all_gather(const at::Tensor& output, const at::Tensor& input, int size, int64_t index);
Operation flat_reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op, int size,
                              int64_t index);

/// Throws c10::ValueError with the pieces of text unless `condition` holds.
#define COLLECTIVES_CHECK_VALUE(condition, ...) TORCH_CHECK_VALUE(condition, __VA_ARGS__)

} // namespace collectives
