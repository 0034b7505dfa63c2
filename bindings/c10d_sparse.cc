// All-reduce of sparse COO tensors: every rank's indices and values are gathered and added up. See c10d_backend.h.
//
// It takes several collectives whose sizes depend on each other's results, so it runs on its own communicator and its own
// thread: an asynchronous one does not block its caller, nor change the order of the group's other operations.
#include "bindings/c10d_backend.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "bindings/errors.h"
#include "bindings/tensor_view.h"

namespace collectives {
namespace {

constexpr const char* kName = "all_reduce (sparse)";

DType dtype_for_wire(const at::Tensor& tensor) { return *dtype_of(tensor.scalar_type()); }

/// One equal block a rank of `mine`; [world size, ...].
at::Tensor gather_equal(Communicator& communicator, const at::Tensor& mine, int64_t timeout_ns) {
    std::vector<int64_t> sizes = {communicator.world_size()};
    sizes.insert(sizes.end(), mine.sizes().begin(), mine.sizes().end());
    at::Tensor all = at::empty(sizes, mine.options());
    Call call;
    call.kind = Collective::all_gather;
    call.dtype = dtype_for_wire(mine);
    call.in.base = mine.mutable_data_ptr();
    call.out.base = all.mutable_data_ptr();
    call.in.count = call.out.count = mine.numel();
    throw_c10d(communicator.run(call, timeout_ns));
    return all;
}

/// Blocks of `counts[r]` elements, one after the other, in a flat tensor.
at::Tensor gather_uneven(Communicator& communicator, const at::Tensor& mine, const std::vector<int64_t>& counts,
                         int64_t timeout_ns) {
    int64_t total = 0;
    for (const int64_t count : counts) total += count;
    at::Tensor all = at::empty({total}, mine.options());
    Call call;
    call.kind = Collective::all_gather;
    call.dtype = dtype_for_wire(mine);
    call.in.base = mine.mutable_data_ptr();
    call.in.count = mine.numel();
    call.out.base = all.mutable_data_ptr();
    call.out.counts = counts.data();
    throw_c10d(communicator.run(call, timeout_ns));
    return all;
}

/// Every rank's number of non-zeros; throws where the ranks' tensors have different shapes.
std::vector<int64_t> agree_on_shape(Communicator& communicator, const at::Tensor& mine, int64_t timeout_ns) {
    constexpr int64_t kMaxDims = 64; // torch's limit
    std::vector<int64_t> shape(3 + kMaxDims, 0);
    shape[0] = mine._nnz();
    shape[1] = mine.sparse_dim();
    shape[2] = mine.dense_dim();
    std::copy(mine.sizes().begin(), mine.sizes().end(), shape.begin() + 3);
    const at::Tensor all = gather_equal(communicator, at::tensor(shape, at::kLong), timeout_ns);
    std::vector<int64_t> counts;
    for (int64_t rank = 0; rank < communicator.world_size(); ++rank) {
        const int64_t* theirs = all[rank].const_data_ptr<int64_t>();
        COLLECTIVES_CHECK_VALUE(std::equal(theirs + 1, theirs + 3 + kMaxDims, shape.begin() + 1), kName,
                                ": the tensor of rank ", rank, " has another shape, or other sparse dimensions, than ",
                                mine.sizes(), " (", mine.sparse_dim(), " sparse) of rank ", communicator.rank());
        counts.push_back(theirs[0]);
    }
    return counts;
}

std::vector<int64_t> times(const std::vector<int64_t>& counts, int64_t factor) {
    std::vector<int64_t> result = counts;
    for (int64_t& count : result) count *= factor;
    return result;
}

} // namespace

at::Tensor sum_sparse(Communicator& communicator, const at::Tensor& mine, bool average, int64_t timeout_ns) {
    const std::vector<int64_t> counts = agree_on_shape(communicator, mine, timeout_ns);
    // Indices as rows (one a non-zero), so that the blocks of the ranks line up.
    const at::Tensor rows = mine._indices().t().contiguous();
    const at::Tensor values = mine._values().contiguous();
    const int64_t value_elements = c10::multiply_integers(mine.sizes().slice(static_cast<size_t>(mine.sparse_dim())));
    const at::Tensor all_rows = gather_uneven(communicator, rows, times(counts, mine.sparse_dim()), timeout_ns);
    const at::Tensor all_values = gather_uneven(communicator, values, times(counts, value_elements), timeout_ns);

    std::vector<int64_t> value_sizes(values.sizes().begin(), values.sizes().end());
    value_sizes[0] = all_rows.numel() / std::max<int64_t>(1, mine.sparse_dim());
    const bool is_half = at::isReducedFloatingType(values.scalar_type());
    at::Tensor summands = all_values.view(value_sizes);
    if (is_half)
        summands = summands.to(at::kFloat);
    at::Tensor sum =
        at::_sparse_coo_tensor_unsafe(all_rows.view({value_sizes[0], mine.sparse_dim()}).t(), summands, mine.sizes())
            .coalesce();
    if (average)
        sum._values().div_(communicator.world_size());
    return is_half ? sum.to(values.scalar_type()) : sum;
}

Communicator& C10dBackend::sparse_communicator() {
    const std::lock_guard lock(sparse_mutex_);
    if (!sparse_)
        throw_c10d(communicator_->split(0, rank_, communicator_->config().name + ":sparse", &sparse_));
    return *sparse_;
}

WorkPtr C10dBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
    COLLECTIVES_CHECK_VALUE(tensors.size() == 1, kName, ": tensors has ", tensors.size(), " tensors, expected one");
    const at::Tensor tensor = tensors.front();
    COLLECTIVES_CHECK_VALUE(tensor.is_cpu(), kName, ": tensor is on ", tensor.device().str(),
                            ": this version of collectives moves CPU tensors only; pass tensor.cpu()");
    COLLECTIVES_CHECK_VALUE(tensor.layout() == at::kSparse, kName, ": tensor has layout ", c10::str(tensor.layout()),
                            ", expected torch.sparse_coo");
    COLLECTIVES_CHECK_VALUE(dtype_of(tensor.scalar_type()).has_value(), kName, ": dtype ",
                            c10::toString(tensor.scalar_type()), " is not supported");
    const ReduceOp op = reduce_op_of(options.reduceOp, kName);
    const bool average = op == ReduceOp::avg && supports(op, *dtype_of(tensor.scalar_type()));
    COLLECTIVES_CHECK_VALUE(op == ReduceOp::sum || average, kName, ": op ", collectives::name_of(op),
                            " is not defined here: zeros that are not stored take part in a sum only (use SUM, or AVG "
                            "of a floating-point tensor)");
    check_active();
    TORCH_CHECK(open_block() == nullptr, "collectives: sparse tensors cannot be part of a coalescing block");
    const ReleaseGil no_gil;
    Communicator& communicator = sparse_communicator();

    Completion completion;
    completion.type = c10d::OpType::_ALLREDUCE_SPARSE;
    completion.title = "collectives:sparse_all_reduce";
    completion.inputs = {tensor};
    completion.outputs = {tensor};
    auto work = c10::make_intrusive<TaskWork>(rank_, std::move(completion), ledger_);
    work->set_sequence(communicator.sequence() + 1);
    work->set_abort(
        [backend = c10::intrusive_ptr<C10dBackend>::unsafe_reclaim_from_nonowning(this)] { backend->abort(); });
    TaskWork::run(work, sparse_queue_,
                  [tensor, average, sparse = sparse_, timeout_ns = timeout_ns_of(options.timeout)] {
                      const at::AutoDispatchBelowADInplaceOrView below_autograd;
                      tensor.copy_(sum_sparse(*sparse, tensor, average, timeout_ns))._coalesced_(true);
                  });
    if (options.asyncOp)
        return work;
    work->wait(kNoTimeout);
    return nullptr;
}

} // namespace collectives
