// Checks, packing and the engine's view of c10d's arguments. See c10d_operation.h.
#include "bindings/c10d_operation.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

#include "bindings/tensor_overlap.h"
#include "bindings/tensor_view.h"

namespace collectives {
namespace {

// Values that differ from what the memory says: lazy conjugate, lazy minus, zeros without memory.
constexpr c10::DispatchKeySet kLazyValues({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                           c10::DispatchKey::ZeroTensor});

at::Tensor packed_values(const at::Tensor& tensor) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::Tensor packed = at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
    packed.copy_(tensor); // resolves lazy values
    return packed;
}

at::Tensor packed_room(const at::Tensor& tensor) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

void check_writable(const at::Tensor& tensor, const Argument& argument) {
    COLLECTIVES_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, argument.text(),
                            ": several elements share one address (an expanded tensor), so that it cannot take a "
                            "result; pass tensor.contiguous()");
}

/// Blocks of one size are said to be so, which spares the engine a look at each.
void set_counts(const std::vector<int64_t>& counts, Blocks* blocks) {
    if (counts.empty())
        return;
    blocks->count = counts.front();
    const bool even = std::all_of(counts.begin(), counts.end(), [&](int64_t count) { return count == blocks->count; });
    blocks->counts = even ? nullptr : counts.data();
}

} // namespace

std::string Argument::text() const {
    std::string text = std::string(operation) + ": " + name;
    if (index >= 0)
        text += "[" + std::to_string(index) + "]";
    return text;
}

bool is_plain(const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_contiguous() &&
           !tensor.key_set().has_any(kLazyValues);
}

DType check_tensor(const at::Tensor& tensor, const Argument& argument) {
    COLLECTIVES_CHECK_VALUE(tensor.defined(), argument.text(), " is undefined");
    COLLECTIVES_CHECK_VALUE(tensor.is_cpu(), argument.text(), " is on ", tensor.device().str(),
                            ": this version of collectives moves CPU tensors only; pass tensor.cpu(), or give this "
                            "device another backend (\"cpu:collectives,cuda:nccl\")");
    COLLECTIVES_CHECK_VALUE(tensor.layout() == at::kStrided, argument.text(), " has layout ", c10::str(tensor.layout()),
                            ", expected a dense tensor (sparse ones: all_reduce only)");
    COLLECTIVES_CHECK_VALUE(
        tensor.has_storage(), argument.text(),
        " has no memory of its own (a wrapper such as DTensor or FakeTensor); pass its local tensor");
    const std::optional<DType> dtype = dtype_of(tensor.scalar_type());
    COLLECTIVES_CHECK_VALUE(dtype.has_value(), argument.text(), " has dtype ", c10::toString(tensor.scalar_type()),
                            ", which is not supported; view it as an integer dtype of the same width to move its bits");
    return *dtype;
}

ReduceOp reduce_op_of(const c10d::ReduceOp& op, const char* operation) {
    switch (op.op_) {
    case c10d::ReduceOp::SUM: return ReduceOp::sum;
    case c10d::ReduceOp::AVG: return ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT: return ReduceOp::product;
    case c10d::ReduceOp::MIN: return ReduceOp::min;
    case c10d::ReduceOp::MAX: return ReduceOp::max;
    case c10d::ReduceOp::BAND: return ReduceOp::band;
    case c10d::ReduceOp::BOR: return ReduceOp::bor;
    case c10d::ReduceOp::BXOR: return ReduceOp::bxor;
    case c10d::ReduceOp::PREMUL_SUM: return ReduceOp::premul_sum;
    case c10d::ReduceOp::UNUSED: break;
    }
    COLLECTIVES_CHECK_VALUE(false, operation, ": op ", static_cast<int>(op.op_), " is no reduce operation");
    return ReduceOp::sum;
}

Operation::Operation(Collective kind, c10d::OpType type, const char* operation, const char* title) : name_(operation) {
    call_.kind = kind;
    completion.type = type;
    completion.title = title;
}

void Operation::set_reduce_op(const c10d::ReduceOp& op) {
    call_.op = reduce_op_of(op, name_);
    if (call_.op != ReduceOp::premul_sum)
        return;
    const auto* factor = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
    COLLECTIVES_CHECK_VALUE(factor != nullptr, name_,
                            ": op PREMUL_SUM carries no factor; make it with "
                            "torch.distributed._make_nccl_premul_sum(factor)");
    if (!factor->tensor_factor.defined()) {
        call_.factor_re = factor->double_factor;
        return;
    }
    const c10::complex<double> value = factor->tensor_factor.item().toComplexDouble();
    call_.factor_re = value.real();
    call_.factor_im = value.imag();
}

void Operation::set_root(int64_t root, int world_size) {
    COLLECTIVES_CHECK_VALUE(root >= 0 && root < world_size, name_, ": root rank ", root, " is not in this group of ",
                            world_size, " ranks (0 to ", world_size - 1, ")");
    call_.root = static_cast<int>(root);
}

void Operation::check_dtype(const at::Tensor& tensor, const Argument& argument) {
    const DType dtype = check_tensor(tensor, argument);
    if (!has_dtype_) {
        has_dtype_ = true;
        call_.dtype = dtype;
        dtype_from_ = argument;
        return;
    }
    COLLECTIVES_CHECK_VALUE(dtype == call_.dtype, argument.text(), " has dtype ", name_of(dtype), ", but ",
                            dtype_from_.text(), " has ", name_of(call_.dtype),
                            ": all tensors of an operation have one dtype");
}

void* Operation::read(const at::Tensor& tensor, const Argument& argument) {
    check_dtype(tensor, argument);
    completion.inputs.push_back(tensor);
    if (is_plain(tensor))
        return const_cast<void*>(tensor.const_data_ptr());
    completion.held.push_back(packed_values(tensor));
    return completion.held.back().mutable_data_ptr();
}

void* Operation::write(const at::Tensor& tensor, const Argument& argument) {
    check_dtype(tensor, argument);
    completion.outputs.push_back(tensor);
    if (is_plain(tensor))
        return tensor.mutable_data_ptr();
    check_writable(tensor, argument);
    completion.unpack.emplace_back(tensor, packed_room(tensor));
    return completion.unpack.back().second.mutable_data_ptr();
}

void* Operation::update(const at::Tensor& tensor, const Argument& argument) {
    check_dtype(tensor, argument);
    completion.inputs.push_back(tensor);
    completion.outputs.push_back(tensor);
    if (is_plain(tensor))
        return tensor.mutable_data_ptr();
    check_writable(tensor, argument);
    completion.unpack.emplace_back(tensor, packed_values(tensor));
    return completion.unpack.back().second.mutable_data_ptr();
}

void Operation::set_in(void* data, int64_t count) {
    call_.in.base = data;
    call_.in.count = count;
}

void Operation::set_out(void* data, int64_t count) {
    call_.out.base = data;
    call_.out.count = count;
}

void Operation::add_in(void* data, int64_t count) {
    in_ptrs_.push_back(data);
    in_counts_.push_back(count);
}

void Operation::add_out(void* data, int64_t count) {
    out_ptrs_.push_back(data);
    out_counts_.push_back(count);
}

void Operation::set_in(void* data, std::vector<int64_t> counts) {
    call_.in.base = data;
    in_counts_ = std::move(counts);
}

void Operation::set_out(void* data, std::vector<int64_t> counts) {
    call_.out.base = data;
    out_counts_ = std::move(counts);
}

void Operation::read_list(const std::vector<at::Tensor>& list, const char* argument) {
    for (size_t i = 0; i < list.size(); ++i)
        add_in(read(list[i], {name_, argument, static_cast<int64_t>(i)}), list[i].numel());
}

void Operation::write_list(const std::vector<at::Tensor>& list, const char* argument) {
    for (size_t i = 0; i < list.size(); ++i)
        add_out(write(list[i], {name_, argument, static_cast<int64_t>(i)}), list[i].numel());
    if (const auto overlap = find_overlap(list))
        COLLECTIVES_CHECK_VALUE(false, name_, ": ", argument, "[", overlap->first, "] and ", argument, "[",
                                overlap->second,
                                "] share memory, so that they cannot both take a result; give each its own");
}

const Call& Operation::call() {
    call_.in.ptrs = in_ptrs_.empty() ? nullptr : in_ptrs_.data();
    call_.out.ptrs = out_ptrs_.empty() ? nullptr : out_ptrs_.data();
    set_counts(in_counts_, &call_.in);
    set_counts(out_counts_, &call_.out);
    return call_;
}

} // namespace collectives
