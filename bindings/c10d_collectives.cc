// Collectives on lists of tensors and on flat tensors: c10d's arguments checked and described for the engine.
// See c10d_backend.h. The flat, synchronous, contiguous forms take a short path without any allocation.
#include "bindings/c10d_backend.h"

#include <algorithm>

#include "bindings/tensor_view.h"

namespace collectives {
namespace {

using c10d::OpType;

/// The only tensor of a list. c10d's lists are from a time when one process drove several devices.
at::Tensor& only(Tensors& tensors, const char* operation, const char* argument) {
    COLLECTIVES_CHECK_VALUE(tensors.size() == 1, operation, ": ", argument, " has ", tensors.size(),
                            " tensors, expected one (one tensor a process; several: the coalesced form)");
    return tensors.front();
}

Tensors& only(std::vector<Tensors>& lists, const char* operation, const char* argument) {
    COLLECTIVES_CHECK_VALUE(lists.size() == 1, operation, ": ", argument, " has ", lists.size(),
                            " lists of tensors, expected one");
    return lists.front();
}

void check_length(const Tensors& tensors, int size, const char* operation, const char* argument) {
    COLLECTIVES_CHECK_VALUE(tensors.size() == static_cast<size_t>(size), operation, ": ", argument, " has ",
                            tensors.size(), " tensors, expected one for each of the ", size, " ranks");
}

void check_numel(const at::Tensor& tensor, int64_t expected, const Argument& argument, const char* why) {
    COLLECTIVES_CHECK_VALUE(tensor.numel() == expected, argument.text(), " has ", tensor.numel(),
                            " elements, expected ", expected, " (", why, ")");
}

void check_root_tensor(int64_t index, const char* operation) {
    COLLECTIVES_CHECK_VALUE(index == 0, operation, ": rootTensor is ", index, ", but there is one tensor a process");
}

void check_empty(const std::vector<Tensors>& lists, int root, const char* operation, const char* argument) {
    const bool empty = lists.empty() || (lists.size() == 1 && lists.front().empty());
    COLLECTIVES_CHECK_VALUE(empty, operation, ": ", argument, " must be empty on ranks other than the root (rank ",
                            root, ")");
}

/// Checks a flat tensor of the short path; false sends it to the general path, which packs or refuses it.
bool describe(const at::Tensor& tensor, Call* call) {
    if (!is_plain(tensor))
        return false;
    const std::optional<DType> dtype = dtype_of(tensor.scalar_type());
    if (!dtype)
        return false;
    call->dtype = *dtype;
    return true;
}

} // namespace

WorkPtr C10dBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
    constexpr const char* kName = "all_reduce";
    const at::Tensor& tensor = only(tensors, kName, "tensors");
    Call call;
    call.kind = Collective::all_reduce;
    if (!options.asyncOp && !is_special() && describe(tensor, &call) &&
        options.reduceOp.op_ != c10d::ReduceOp::PREMUL_SUM) {
        call.op = reduce_op_of(options.reduceOp, kName);
        call.in.base = call.out.base = tensor.mutable_data_ptr();
        call.in.count = call.out.count = tensor.numel();
        const ProfiledRange range("collectives:all_reduce", tensor);
        return run_now(call, options.timeout);
    }
    if (tensor.layout() == at::kSparse)
        return allreduce_sparse(tensors, options);
    Operation operation(Collective::all_reduce, OpType::ALLREDUCE, kName, "collectives:all_reduce");
    operation.set_reduce_op(options.reduceOp);
    void* data = operation.update(tensor, {kName, "tensor"});
    operation.set_in(data, tensor.numel());
    operation.set_out(data, tensor.numel());
    return launch(std::move(operation), options.timeout, options.asyncOp);
}

WorkPtr C10dBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
    constexpr const char* kName = "broadcast";
    const at::Tensor& tensor = only(tensors, kName, "tensors");
    check_root_tensor(options.rootTensor, kName);
    Call call;
    if (!options.asyncOp && !is_special() && describe(tensor, &call) && options.rootRank >= 0 &&
        options.rootRank < size_) {
        call.kind = Collective::broadcast;
        call.root = static_cast<int>(options.rootRank);
        call.in.base = call.out.base = tensor.mutable_data_ptr();
        call.in.count = call.out.count = tensor.numel();
        const ProfiledRange range("collectives:broadcast", tensor);
        return run_now(call, options.timeout);
    }
    Operation operation(Collective::broadcast, OpType::BROADCAST, kName, "collectives:broadcast");
    operation.set_root(options.rootRank, size_);
    const Argument argument{kName, "tensor"};
    void* data = nullptr;
    if (options.rootRank == rank_) { // only read here: an expanded tensor is fine, and nothing is copied back
        data = operation.read(tensor, argument);
        operation.completion.outputs.push_back(tensor);
    } else {
        data = operation.write(tensor, argument);
        operation.completion.inputs.push_back(tensor);
    }
    operation.set_in(data, tensor.numel());
    operation.set_out(data, tensor.numel());
    return launch(std::move(operation), options.timeout, options.asyncOp);
}

WorkPtr C10dBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
    constexpr const char* kName = "reduce";
    const at::Tensor& tensor = only(tensors, kName, "tensors");
    check_root_tensor(options.rootTensor, kName);
    Operation operation(Collective::reduce, OpType::REDUCE, kName, "collectives:reduce");
    operation.set_reduce_op(options.reduceOp);
    operation.set_root(options.rootRank, size_);
    const Argument argument{kName, "tensor"};
    void* data = nullptr;
    if (options.rootRank == rank_) {
        data = operation.update(tensor, argument);
    } else { // never written to, unlike gloo's
        data = operation.read(tensor, argument);
        operation.completion.outputs.push_back(tensor);
    }
    operation.set_in(data, tensor.numel());
    operation.set_out(data, tensor.numel());
    return launch(std::move(operation), options.timeout, options.asyncOp);
}

WorkPtr C10dBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
    constexpr const char* kName = "all_gather";
    const Tensors& list = only(outputs, kName, "output_tensors");
    const at::Tensor& input = only(inputs, kName, "input_tensors");
    check_length(list, size_, kName, "output_tensors");
    Operation operation(Collective::all_gather, OpType::ALLGATHER, kName, "collectives:all_gather");
    void* data = operation.read(input, {kName, "input_tensor"});
    operation.set_in(data, input.numel());
    check_numel(list[static_cast<size_t>(rank_)], input.numel(), {kName, "output_tensors", rank_},
                "as many as the input of this rank");
    operation.write_list(list, "output_tensors");
    return launch(std::move(operation), options.timeout, options.asyncOp);
}

WorkPtr C10dBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
    constexpr const char* kName = "all_gather_into_tensor";
    check_numel(output, input.numel() * size_, {kName, "output_tensor"}, "the input's times the number of ranks");
    Call call;
    if (!options.asyncOp && !is_special() && describe(input, &call) && is_plain(output) &&
        output.scalar_type() == input.scalar_type()) {
        call.kind = Collective::all_gather;
        call.in.base = const_cast<void*>(input.const_data_ptr());
        call.out.base = output.mutable_data_ptr();
        call.in.count = call.out.count = input.numel();
        const ProfiledRange range("collectives:all_gather", input);
        return run_now(call, options.timeout);
    }
    Operation operation = flat_all_gather(output, input, size_, -1);
    return launch(std::move(operation), options.timeout, options.asyncOp);
}

Operation flat_all_gather(const at::Tensor& output, const at::Tensor& input, int size, int64_t index) {
    constexpr const char* kName = "all_gather_into_tensor";
    check_numel(output, input.numel() * size, {kName, "output_tensor", index}, "the input's times the number of ranks");
    Operation operation(Collective::all_gather, OpType::_ALLGATHER_BASE, kName, "collectives:all_gather");
    operation.set_in(operation.read(input, {kName, "input_tensor", index}), input.numel());
    operation.set_out(operation.write(output, {kName, "output_tensor", index}), input.numel());
    return operation;
}

Operation flat_reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op, int size,
                              int64_t index) {
    constexpr const char* kName = "reduce_scatter_tensor";
    check_numel(input, output.numel() * size, {kName, "input_tensor", index}, "the output's times the number of ranks");
    Operation operation(Collective::reduce_scatter, OpType::_REDUCE_SCATTER_BASE, kName, "collectives:reduce_scatter");
    operation.set_reduce_op(op);
    operation.set_in(operation.read(input, {kName, "input_tensor", index}), output.numel());
    operation.set_out(operation.write(output, {kName, "output_tensor", index}), output.numel());
    return operation;
}

WorkPtr C10dBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
    constexpr const char* kName = "gather";
    const at::Tensor& input = only(inputs, kName, "input_tensors");
    Operation operation(Collective::gather, OpType::GATHER, kName, "collectives:gather");
    operation.set_root(options.rootRank, size_);
    operation.set_in(operation.read(input, {kName, "input_tensor"}), input.numel());
    if (options.rootRank != rank_) {
        check_empty(outputs, static_cast<int>(options.rootRank), kName, "output_tensors");
        return launch(std::move(operation), options.timeout, options.asyncOp);
    }
    const Tensors& list = only(outputs, kName, "output_tensors");
    check_length(list, size_, kName, "output_tensors");
    check_numel(list[static_cast<size_t>(rank_)], input.numel(), {kName, "output_tensors", rank_},
                "as many as the input of this rank");
    operation.write_list(list, "output_tensors");
    return launch(std::move(operation), options.timeout, options.asyncOp);
}

WorkPtr C10dBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
    constexpr const char* kName = "scatter";
    const at::Tensor& output = only(outputs, kName, "output_tensors");
    Operation operation(Collective::scatter, OpType::SCATTER, kName, "collectives:scatter");
    operation.set_root(options.rootRank, size_);
    operation.set_out(operation.write(output, {kName, "output_tensor"}), output.numel());
    if (options.rootRank != rank_) {
        check_empty(inputs, static_cast<int>(options.rootRank), kName, "input_tensors");
        return launch(std::move(operation), options.timeout, options.asyncOp);
    }
    const Tensors& list = only(inputs, kName, "input_tensors");
    check_length(list, size_, kName, "input_tensors");
    check_numel(list[static_cast<size_t>(rank_)], output.numel(), {kName, "input_tensors", rank_},
                "as many as the output of this rank");
    operation.read_list(list, "input_tensors");
    return launch(std::move(operation), options.timeout, options.asyncOp);
}

WorkPtr C10dBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                    const c10d::ReduceScatterOptions& options) {
    constexpr const char* kName = "reduce_scatter";
    const at::Tensor& output = only(outputs, kName, "output_tensors");
    const Tensors& list = only(inputs, kName, "input_tensors");
    check_length(list, size_, kName, "input_tensors");
    check_numel(list[static_cast<size_t>(rank_)], output.numel(), {kName, "input_tensors", rank_},
                "as many as the output of this rank");
    Operation operation(Collective::reduce_scatter, OpType::REDUCE_SCATTER, kName, "collectives:reduce_scatter");
    operation.set_reduce_op(options.reduceOp);
    operation.read_list(list, "input_tensors");
    operation.set_out(operation.write(output, {kName, "output_tensor"}), output.numel());
    return launch(std::move(operation), options.timeout, options.asyncOp);
}

WorkPtr C10dBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::ReduceScatterOptions& options) {
    constexpr const char* kName = "reduce_scatter_tensor";
    check_numel(input, output.numel() * size_, {kName, "input_tensor"}, "the output's times the number of ranks");
    Call call;
    if (!options.asyncOp && !is_special() && describe(input, &call) && is_plain(output) &&
        output.scalar_type() == input.scalar_type() && options.reduceOp.op_ != c10d::ReduceOp::PREMUL_SUM) {
        call.kind = Collective::reduce_scatter;
        call.op = reduce_op_of(options.reduceOp, kName);
        call.in.base = const_cast<void*>(input.const_data_ptr());
        call.out.base = output.mutable_data_ptr();
        call.in.count = call.out.count = output.numel();
        const ProfiledRange range("collectives:reduce_scatter", input);
        return run_now(call, options.timeout);
    }
    Operation operation = flat_reduce_scatter(output, input, options.reduceOp, size_, -1);
    return launch(std::move(operation), options.timeout, options.asyncOp);
}

namespace {

/// Elements for each rank, from c10d's splits along dimension 0. Empty splits: equal shares.
std::vector<int64_t> split_counts(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size,
                                  const char* argument, const char* splits_argument) {
    constexpr const char* kName = "all_to_all_single";
    COLLECTIVES_CHECK_VALUE(tensor.dim() > 0 || splits.empty(), kName, ": ", argument,
                            " is a scalar and has no rows to split");
    const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
    if (splits.empty()) {
        COLLECTIVES_CHECK_VALUE(rows % size == 0, kName, ": ", argument, " has ", rows,
                                " rows, which do not divide into ", size, " equal parts; pass ", splits_argument);
        return std::vector<int64_t>(static_cast<size_t>(size), tensor.numel() / size);
    }
    COLLECTIVES_CHECK_VALUE(splits.size() == static_cast<size_t>(size), kName, ": ", splits_argument, " has ",
                            splits.size(), " entries, expected one for each of the ", size, " ranks");
    const int64_t row_elements = rows == 0 ? 0 : tensor.numel() / rows;
    std::vector<int64_t> counts;
    counts.reserve(splits.size());
    int64_t sum = 0;
    for (const int64_t split : splits) {
        COLLECTIVES_CHECK_VALUE(split >= 0, kName, ": ", splits_argument, " has the negative entry ", split);
        sum += split;
        counts.push_back(split * row_elements);
    }
    COLLECTIVES_CHECK_VALUE(sum == rows, kName, ": ", splits_argument, " sums to ", sum, ", but ", argument, " has ",
                            rows, " rows");
    return counts;
}

} // namespace

WorkPtr C10dBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                   std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
    constexpr const char* kName = "all_to_all_single";
    Operation operation(Collective::all_to_all, OpType::ALLTOALL_BASE, kName, "collectives:all_to_all");
    std::vector<int64_t> in_counts = split_counts(input, input_splits, size_, "input", "input_split_sizes");
    std::vector<int64_t> out_counts = split_counts(output, output_splits, size_, "output", "output_split_sizes");
    operation.set_in(operation.read(input, {kName, "input"}), std::move(in_counts));
    operation.set_out(operation.write(output, {kName, "output"}), std::move(out_counts));
    return launch(std::move(operation), options.timeout, options.asyncOp);
}

WorkPtr C10dBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
    constexpr const char* kName = "all_to_all";
    check_length(outputs, size_, kName, "output_tensor_list");
    check_length(inputs, size_, kName, "input_tensor_list");
    Operation operation(Collective::all_to_all, OpType::ALLTOALL, kName, "collectives:all_to_all");
    operation.read_list(inputs, "input_tensor_list");
    operation.write_list(outputs, "output_tensor_list");
    const auto me = static_cast<size_t>(rank_);
    check_numel(outputs[me], inputs[me].numel(), {kName, "output_tensor_list", rank_},
                "as many as input_tensor_list has for this rank itself");
    return launch(std::move(operation), options.timeout, options.asyncOp);
}

WorkPtr C10dBackend::barrier(const c10d::BarrierOptions& options) {
    if (!options.asyncOp && !is_special()) {
        Call call; // a barrier
        const ProfiledRange range("collectives:barrier");
        return run_now(call, options.timeout);
    }
    Operation operation(Collective::barrier, OpType::BARRIER, "barrier", "collectives:barrier");
    return launch(std::move(operation), options.timeout, options.asyncOp);
}

} // namespace collectives
