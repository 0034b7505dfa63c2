// Several operations at once: coalesced collectives, coalescing blocks; and messages between two ranks.
// See c10d_backend.h.
#include "bindings/c10d_backend.h"

#include "bindings/errors.h"

namespace collectives {

using c10d::OpType;

// ---- coalesced collectives ------------------------------------------------------------------------------------------

WorkPtr C10dBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
    constexpr const char* kName = "all_reduce_coalesced";
    std::vector<Operation> operations;
    operations.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
        const at::Tensor& tensor = tensors[i];
        Operation& operation = operations.emplace_back(Collective::all_reduce, OpType::ALLREDUCE_COALESCED, kName,
                                                       "collectives:all_reduce");
        operation.set_reduce_op(options.reduceOp);
        void* data = operation.update(tensor, {kName, "tensors", static_cast<int64_t>(i)});
        operation.set_in(data, tensor.numel());
        operation.set_out(data, tensor.numel());
    }
    return launch_batch(std::move(operations), options.timeout, options.asyncOp);
}

WorkPtr C10dBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& options) {
    constexpr const char* kName = "all_gather_coalesced";
    COLLECTIVES_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_), kName, ": output_tensor_lists has ",
                            outputs.size(), " lists, expected one for each of the ", size_, " ranks");
    for (size_t rank = 0; rank < outputs.size(); ++rank)
        COLLECTIVES_CHECK_VALUE(outputs[rank].size() == inputs.size(), kName, ": output_tensor_lists[", rank, "] has ",
                                outputs[rank].size(), " tensors, expected ", inputs.size(), " (the number of inputs)");
    std::vector<Operation> operations;
    operations.reserve(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
        Operation& operation = operations.emplace_back(Collective::all_gather, OpType::ALLGATHER_COALESCED, kName,
                                                       "collectives:all_gather");
        void* data = operation.read(inputs[i], {kName, "input_tensor_list", static_cast<int64_t>(i)});
        operation.set_in(data, inputs[i].numel());
        for (const Tensors& list : outputs) {
            void* room = operation.write(list[i], {kName, "output_tensor_lists[rank]", static_cast<int64_t>(i)});
            operation.add_out(room, list[i].numel());
        }
        const int64_t own = outputs[static_cast<size_t>(rank_)][i].numel();
        COLLECTIVES_CHECK_VALUE(own == inputs[i].numel(), kName, ": output_tensor_lists[", rank_, "][", i, "] has ",
                                own, " elements, expected ", inputs[i].numel(), " (as many as the input of this rank)");
    }
    return launch_batch(std::move(operations), options.timeout, options.asyncOp);
}

namespace {

void check_pairs(const Tensors& outputs, const Tensors& inputs, const char* operation) {
    COLLECTIVES_CHECK_VALUE(outputs.size() == inputs.size(), operation, ": ", outputs.size(), " outputs, but ",
                            inputs.size(), " inputs");
}

} // namespace

WorkPtr C10dBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllgatherOptions& options) {
    check_pairs(outputs, inputs, "all_gather_into_tensor_coalesced");
    std::vector<Operation> operations;
    operations.reserve(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
        operations.push_back(flat_all_gather(outputs[i], inputs[i], size_, static_cast<int64_t>(i)));
    return launch_batch(std::move(operations), options.timeout, options.asyncOp);
}

WorkPtr C10dBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                     const c10d::ReduceScatterOptions& options) {
    check_pairs(outputs, inputs, "reduce_scatter_tensor_coalesced");
    std::vector<Operation> operations;
    operations.reserve(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
        operations.push_back(
            flat_reduce_scatter(outputs[i], inputs[i], options.reduceOp, size_, static_cast<int64_t>(i)));
    return launch_batch(std::move(operations), options.timeout, options.asyncOp);
}

// ---- messages -------------------------------------------------------------------------------------------------------

WorkPtr C10dBackend::message(Tensors& tensors, OpType type, const char* name, const char* title, int peer, int tag) {
    COLLECTIVES_CHECK_VALUE(tensors.size() == 1, name, ": tensors has ", tensors.size(), " tensors, expected one");
    COLLECTIVES_CHECK_VALUE(peer == kAnySource || (peer >= 0 && peer < size_), name, ": rank ", peer,
                            " is not in this group of ", size_, " ranks (0 to ", size_ - 1, ")");
    COLLECTIVES_CHECK_VALUE(tag >= 0, name, ": tag is ", tag, ", must not be negative");
    check_active();
    const at::Tensor& tensor = tensors.front();
    Operation operation(Collective::barrier, type, name, title); // carries the tensor, not a collective
    const Argument argument{name, "tensor"};
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    RequestPtr request;
    if (type == OpType::SEND) {
        const void* data = operation.read(tensor, argument);
        request = communicator_->start_send(data, bytes, peer, static_cast<uint32_t>(tag));
    } else {
        void* data = operation.write(tensor, argument);
        operation.completion.inputs.push_back(tensor);
        request = communicator_->start_recv(data, bytes, peer, static_cast<uint32_t>(tag));
    }
    if (request->done()) {
        const Code code = request->status().code();
        if (code == Code::invalid_argument || code == Code::unsupported)
            throw_c10d(request->status());
    }
    auto work = new_work(std::move(operation.completion));
    work->attach(std::move(request));
    if (is_special())
        if (Block* block = open_block())
            block->works.push_back(work);
    return work;
}

WorkPtr C10dBackend::send(Tensors& tensors, int destination, int tag) {
    COLLECTIVES_CHECK_VALUE(destination != kAnySource, "send: destination rank is ", destination);
    return message(tensors, OpType::SEND, "send", "collectives:send", destination, tag);
}

WorkPtr C10dBackend::recv(Tensors& tensors, int source, int tag) {
    COLLECTIVES_CHECK_VALUE(source != kAnySource, "recv: source rank is ", source, "; recv_anysource takes from any");
    return message(tensors, OpType::RECV, "recv", "collectives:recv", source, tag);
}

WorkPtr C10dBackend::recvAnysource(Tensors& tensors, int tag) {
    return message(tensors, OpType::RECVANYSOURCE, "recv_anysource", "collectives:recvAnySource", kAnySource, tag);
}

// ---- blocks ---------------------------------------------------------------------------------------------------------
//
// Between startCoalescing and endCoalescing collectives are only noted down, and start as one at the end. Messages start
// at once: nothing waits in between, and none of them can hold up another.

C10dBackend::Block* C10dBackend::open_block() {
    const std::lock_guard lock(block_mutex_);
    return block_ && block_->owner == std::this_thread::get_id() ? block_.get() : nullptr;
}

std::unique_ptr<C10dBackend::Block> C10dBackend::take_block() {
    std::unique_ptr<Block> block;
    {
        const std::lock_guard lock(block_mutex_);
        if (block_ && block_->owner == std::this_thread::get_id())
            block = std::move(block_);
    }
    update_special();
    return block;
}

void C10dBackend::startCoalescing() {
    check_active();
    if (const std::unique_ptr<Block> left_open = take_block()) {
        // An exception left the last block without its end. What it had noted down never ran, on no rank.
        for (const auto& work : left_open->deferred_works)
            work->abandon(Status(Code::aborted, "the coalescing block of this operation was left by an exception"));
    }
    {
        const std::lock_guard lock(block_mutex_);
        TORCH_CHECK(block_ == nullptr, "collectives: another thread has a coalescing block open on this process group");
        block_ = std::make_unique<Block>();
        block_->owner = std::this_thread::get_id();
    }
    update_special();
}

WorkPtr C10dBackend::endCoalescing() {
    const std::unique_ptr<Block> block = take_block();
    TORCH_CHECK(block != nullptr, "collectives: endCoalescing without startCoalescing on this thread");
    if (!block->deferred.empty()) {
        std::vector<Call> calls;
        calls.reserve(block->deferred.size());
        for (Operation& operation : block->deferred) calls.push_back(operation.call());
        const RequestPtr request = communicator_->start_coalesced(calls, timeout_ns_of(block->timeout));
        for (const auto& work : block->deferred_works) work->attach(request);
    }
    if (block->works.size() == 1)
        return block->works.front();
    return GroupWork::of(rank_, std::move(block->works), ledger_);
}

} // namespace collectives
