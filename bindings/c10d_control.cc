// Debugging, hooks, failure, membership and memory of the torch backend. See c10d_backend.h.
#include "bindings/c10d_backend.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>

#include "base/clock.h"
#include "bindings/communicator.h"
#include "bindings/errors.h"
#include "bindings/shared_allocator.h"

namespace collectives {
namespace {

constexpr int64_t kCloseBound = 10 * kSecond; // destroy_process_group waits no longer for operations under way
constexpr int kShrinkAbort = 1;               // torch.distributed.distributed_c10d.SHRINK_ABORT

std::string join(const std::vector<int>& ranks, const char* separator) {
    std::string text;
    for (const int rank : ranks) text += (text.empty() ? "" : separator) + std::to_string(rank);
    return text;
}

} // namespace

// ---- debugging ------------------------------------------------------------------------------------------------------

/// Where the next monitored barrier meets in the store. The number of the last collective is part of it, so that ranks
/// that missed a meeting are in step again after the next collective.
std::string C10dBackend::next_meeting() {
    const std::lock_guard lock(meeting_mutex_);
    const uint64_t sequence = getSequenceNumberForGroup();
    meeting_ = sequence == meeting_sequence_ ? meeting_ + 1 : 1;
    meeting_sequence_ = sequence;
    return "collectives/monitored/" + std::to_string(bootstrap_->generation()) + "/" + std::to_string(sequence) + "." +
           std::to_string(meeting_);
}

void C10dBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
    check_active();
    throw_c10d(communicator_->error());
    const auto timeout = options.timeout.count() < 0 ? options_->timeout : options.timeout;
    const int64_t deadline_ns = deadline_after(monotonic_ns(), std::chrono::nanoseconds(timeout).count());
    if (size_ == 1)
        return;
    std::vector<int> missing;
    throw_c10d(meet(*store_, next_meeting(), rank_, size_, deadline_ns, &missing));
    if (missing.empty())
        return;
    const bool late = std::find(missing.begin(), missing.end(), rank_) != missing.end();
    const size_t unnamed = wait_all_ranks ? 0 : missing.size() - 1;
    if (!wait_all_ranks)
        missing.resize(1);
    throw_c10d(
        Status(Code::timeout,
               "group " + options_->group_name + ", rank " + std::to_string(rank_) + ": Rank" +
                   (missing.size() > 1 ? "s " : " ") + join(missing, ", ") + " failed to pass monitoredBarrier in " +
                   std::to_string(timeout.count()) + " ms" +
                   (unnamed > 0 ? " (and " + std::to_string(unnamed) + " more; wait_all_ranks=True names them)" : "") +
                   (late ? "; this rank came too late" : "")));
}

void C10dBackend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
    ledger_->set_hook(hook);
    onCompletionHook_ = std::move(hook); // what hasHooks() looks at
    update_special();
}

// ---- failure --------------------------------------------------------------------------------------------------------

c10d::ErrorType C10dBackend::getError() {
    switch (communicator_->error().code()) {
    case Code::ok: return c10d::ErrorType::SUCCESS;
    case Code::timeout: return c10d::ErrorType::TIMEOUT;
    case Code::peer_failed: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
    }
}

void C10dBackend::abort() {
    if (is_forked_child())
        return;
    const ReleaseGil no_gil;
    const std::string reason = "abort() was called on rank " + std::to_string(rank_);
    communicator_->abort(reason);
    std::shared_ptr<Communicator> sparse;
    {
        const std::lock_guard lock(sparse_mutex_);
        sparse = sparse_;
    }
    if (sparse)
        sparse->abort(reason);
}

void C10dBackend::shutdown() {
    if (is_forked_child())
        return;
    const ReleaseGil no_gil;
    std::shared_ptr<Communicator> sparse;
    {
        const std::lock_guard lock(sparse_mutex_);
        sparse = sparse_;
    }
    // A group that failed has nothing more to say; closing one that works waits for what is under way.
    const Status sparse_closed = sparse ? sparse->close(kCloseBound) : Status();
    throw_c10d(communicator_->close(kCloseBound));
    throw_c10d(sparse_closed);
}

// ---- membership -----------------------------------------------------------------------------------------------------

BackendPtr C10dBackend::derive(const StorePtr& store, const c10::intrusive_ptr<c10d::Backend::Options>& options,
                               std::vector<uint64_t> global_ranks, int rank, int size) const {
    auto own = c10::make_intrusive<C10dOptions>(*options_);
    if (options) {
        if (const auto* given = dynamic_cast<const C10dOptions*>(options.get()))
            own = c10::make_intrusive<C10dOptions>(*given);
        own->timeout = options->timeout;
        own->group_name = options->group_name;
        own->group_desc = options->group_desc;
    }
    own->global_ranks_in_group = std::move(global_ranks);
    return create(store, rank, size, std::move(own));
}

BackendPtr C10dBackend::split(const StorePtr& store, const std::vector<int>& ranks,
                              const c10::intrusive_ptr<c10d::Backend::Options>& options) {
    COLLECTIVES_CHECK_VALUE(!ranks.empty(), "split: ranks is empty");
    std::vector<uint64_t> global;
    for (const int rank : ranks) {
        COLLECTIVES_CHECK_VALUE(rank >= 0 && rank < size_, "split: rank ", rank, " is not in this group of ", size_);
        COLLECTIVES_CHECK_VALUE(std::count(ranks.begin(), ranks.end(), rank) == 1, "split: rank ", rank,
                                " comes twice");
        global.push_back(global_rank(rank));
    }
    const auto me = std::find(ranks.begin(), ranks.end(), rank_);
    if (me == ranks.end())
        return nullptr;
    const std::string place = options_->group_name + ":split:" + join(ranks, "_");
    const StorePtr use = store ? store : StorePtr(c10::make_intrusive<c10d::PrefixStore>(place, store_));
    auto named = options;
    if (!named) {
        auto copy = c10::make_intrusive<C10dOptions>(*options_);
        copy->group_name = place;
        named = copy;
    }
    return derive(use, named, std::move(global), static_cast<int>(me - ranks.begin()), static_cast<int>(ranks.size()));
}

BackendPtr C10dBackend::merge(const StorePtr& store, const c10::intrusive_ptr<c10d::Backend::Options>& options,
                              const int& rank, const int& size) {
    COLLECTIVES_CHECK_VALUE(store, "merge: store is missing: the groups to be merged have none in common yet");
    COLLECTIVES_CHECK_VALUE(rank >= 0 && rank < size, "merge: rank ", rank, " is not in 0 to ", size - 1);
    return derive(store, options, {}, rank, size);
}

BackendPtr C10dBackend::shrink(const std::vector<int64_t>& ranks_to_exclude, int flags,
                               const c10::intrusive_ptr<c10d::Backend::Options>& options) {
    std::vector<int> exclude;
    for (const int64_t rank : ranks_to_exclude) {
        COLLECTIVES_CHECK_VALUE(rank >= 0 && rank < size_, "shrink: rank ", rank, " is not in this group of ", size_);
        COLLECTIVES_CHECK_VALUE(rank != rank_, "shrink: rank ", rank,
                                " excludes itself; only those that stay may call");
        exclude.push_back(static_cast<int>(rank));
    }
    std::sort(exclude.begin(), exclude.end());
    exclude.erase(std::unique(exclude.begin(), exclude.end()), exclude.end());
    if ((flags & kShrinkAbort) != 0)
        abort();

    const ReleaseGil no_gil;
    auto own = c10::make_intrusive<C10dOptions>(*options_);
    if (options)
        own->timeout = options->timeout;
    own->group_name = options_->group_name + ":shrunk:" + std::to_string(++shrinks_);
    own->global_ranks_in_group.clear();
    for (int rank = 0; rank < size_; ++rank)
        if (!std::binary_search(exclude.begin(), exclude.end(), rank))
            own->global_ranks_in_group.push_back(global_rank(rank));
    std::shared_ptr<Communicator> survivors;
    throw_c10d(communicator_->shrink(exclude, own->group_name, &survivors));
    const StorePtr store = c10::make_intrusive<c10d::PrefixStore>(own->group_name + ":" + join(exclude, "_"), store_);
    auto bootstrap = std::make_shared<StoreBootstrap>(store, survivors->rank(), survivors->world_size(),
                                                      own->group_name, survivors->config().global_ranks);
    return c10::make_intrusive<C10dBackend>(std::move(survivors), std::move(bootstrap), store, std::move(own));
}

void C10dBackend::eagerConnectSingleDevice(at::Device) {} // a group is connected when it is made

// ---- memory ---------------------------------------------------------------------------------------------------------

std::shared_ptr<c10::Allocator> C10dBackend::getMemAllocator() { return shared_allocator_handle(); }

at::Tensor C10dBackend::allocateTensor(long size, at::TensorOptions options) {
    COLLECTIVES_CHECK_VALUE(size >= 0, "allocate_tensor: size is ", size, ", must not be negative");
    COLLECTIVES_CHECK_VALUE(options.device().is_cpu(), "allocate_tensor: device is ", options.device().str(),
                            ": shared memory is for CPU tensors");
    return empty_shared(size, c10::typeMetaToScalarType(options.dtype()));
}

bool C10dBackend::supportsTensorAlloc(c10::DeviceIndex device) {
    return device < 0 || !at::hasCUDA(); // the CPU's index is -1; elsewhere an index means a GPU
}

void C10dBackend::suspend() {
    check_active();
    const ReleaseGil no_gil;
    ledger_->wait_idle();
    throw_c10d(communicator_->run(Call())); // a barrier: nobody leaves while another still needs this rank
    suspended_ = true;
    update_special();
    sequence_before_ += communicator_->sequence();
    const std::lock_guard lock(sparse_mutex_);
    if (sparse_)
        throw_c10d(sparse_->close(kCloseBound));
    sparse_.reset();
    throw_c10d(communicator_->close(kCloseBound));
}

void C10dBackend::resume() {
    TORCH_CHECK(suspended_, "collectives: resume() of a process group that is not suspended");
    const ReleaseGil no_gil;
    Node* node = nullptr;
    throw_c10d(process_node(&node));
    CommunicatorConfig config = communicator_->config();
    config.timeout_ns = std::chrono::nanoseconds(options_->timeout).count();
    std::shared_ptr<Communicator> communicator;
    throw_c10d(Communicator::create(*node, config, *bootstrap_, &communicator));
    communicator_ = std::move(communicator);
    suspended_ = false;
    update_special();
}

std::unordered_map<std::string, uint64_t> C10dBackend::getMemoryStats() {
    Node* node = nullptr;
    throw_c10d(process_node(&node));
    return {{"segment_used_bytes", static_cast<uint64_t>(node->segment_used_bytes())},
            {"heap_used_bytes", static_cast<uint64_t>(node->heap_used_bytes())},
            {"suspended", suspended_ ? 1 : 0}};
}

} // namespace collectives
