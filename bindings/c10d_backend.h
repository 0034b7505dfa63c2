// The torch.distributed backend "collectives": every virtual of c10d::Backend over an engine Communicator.
// Included by the c10d bindings only. Methods may be called with or without the GIL, by any thread.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bindings/c10d_operation.h"
#include "bindings/c10d_work.h"
#include "bindings/store_bootstrap.h"
#include "engine/communicator.h"

namespace collectives {

/// pg_options of this backend. Fields of the base: timeout, group_name, group_desc, global_ranks_in_group.
struct C10dOptions final : c10d::Backend::Options {
    explicit C10dOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout);

    std::vector<std::string> transports; // allowed transports, in order of preference; empty: all
    std::string interface;               // of this process, for peers on other hosts; empty: chosen
    std::string algorithm;               // forced wherever it applies; empty: chosen by the planner
    bool deterministic = false;          // rank-order algorithms only
    int64_t staging_bytes = 0;           // 0: the node decides
};

using OptionsPtr = c10::intrusive_ptr<C10dOptions>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

// Marks an override of a virtual that older torch (down to 2.11) may lack: there it is a method of ours alone, so the
// word `override` must not stand.
#define COLLECTIVES_OVERRIDE_IF_THERE

class C10dBackend final : public c10d::Backend {
  public:
    /// Joins the group; collective over the store. Throws c10::ValueError or c10::DistBackendError (naming who is missing).
    static c10::intrusive_ptr<C10dBackend> create(StorePtr store, int rank, int size, OptionsPtr options);

    C10dBackend(std::shared_ptr<Communicator> communicator, std::shared_ptr<StoreBootstrap> bootstrap, StorePtr store,
                OptionsPtr options);
    ~C10dBackend() override;

    // ---- identity (c10d_backend.cc)
    const std::string getBackendName() const override { return "collectives"; }
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
    OptionsPtr options() const { return options_; }
    void setTimeout(std::chrono::milliseconds timeout) override;
    void setGroupUid(const std::string& uid) override;
    bool supportsSplitting() const override { return true; }
    bool supportsCoalescing() const override { return true; }
    bool supportsShrinking() const COLLECTIVES_OVERRIDE_IF_THERE { return true; }
    bool supportsTimeEstimation() const override { return false; } // estimates are for devices with streams

    // ---- collectives on lists and on flat tensors (c10d_collectives.cc)
    WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
    WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
    WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
    WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
    WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
    WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
    WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
    WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                           const c10d::ReduceScatterOptions& options) override;
    WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::ReduceScatterOptions& options) override;
    WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                          std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
    WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
    WorkPtr barrier(const c10d::BarrierOptions& options) override;

    // ---- several at once, sparse, point to point (c10d_groups.cc, c10d_sparse.cc)
    WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
    WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& options) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::ReduceScatterOptions& options) override;
    WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
    WorkPtr send(Tensors& tensors, int destination, int tag) override;
    WorkPtr recv(Tensors& tensors, int source, int tag) override;
    WorkPtr recvAnysource(Tensors& tensors, int tag) override;
    void startCoalescing() override;
    WorkPtr endCoalescing() override;

    // ---- debugging, hooks, failure, membership, memory (c10d_control.cc)
    void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
    void setSequenceNumberForGroup() override {} // every communicator counts from 0
    uint64_t getSequenceNumberForGroup() override { return sequence_before_ + communicator_->sequence(); }
    void enableCollectivesTiming() override {} // every work is timed
    void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
    void waitForPendingWorks() override { ledger_->wait_idle(); }
    c10d::ErrorType getError() override;
    void abort() override;
    void shutdown() override;
    BackendPtr split(const StorePtr& store, const std::vector<int>& ranks,
                     const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
    BackendPtr merge(const StorePtr& store, const c10::intrusive_ptr<c10d::Backend::Options>& options, const int& rank,
                     const int& size) override;
    BackendPtr
    shrink(const std::vector<int64_t>& ranks_to_exclude, int flags = 0,
           const c10::intrusive_ptr<c10d::Backend::Options>& options = nullptr) COLLECTIVES_OVERRIDE_IF_THERE;
    void eagerConnectSingleDevice(at::Device device) override;
    std::shared_ptr<c10::Allocator> getMemAllocator() override;
    at::Tensor allocateTensor(long size, at::TensorOptions options) override;
    bool supportsTensorAlloc(c10::DeviceIndex device) override;
    void suspend() COLLECTIVES_OVERRIDE_IF_THERE;
    void resume() COLLECTIVES_OVERRIDE_IF_THERE;
    std::unordered_map<std::string, uint64_t> getMemoryStats() COLLECTIVES_OVERRIDE_IF_THERE;

    Communicator& communicator() const { return *communicator_; }

  private:
    /// Operations of a startCoalescing/endCoalescing block; touched only by the thread that opened it.
    struct Block {
        std::thread::id owner;
        std::chrono::milliseconds timeout = c10d::kUnsetTimeout; // the longest that an operation asked for
        std::vector<Operation> deferred;
        std::vector<c10::intrusive_ptr<RequestWork>> deferred_works; // one for each of `deferred`
        std::vector<c10::intrusive_ptr<WorkBase>> works;             // everything, in order of issue
    };

    /// True where an operation must take the general path: suspended, a hook is registered, or a block is open.
    bool is_special() const { return special_.load(std::memory_order_acquire); }
    void update_special();
    void check_active() const;
    Block* open_block();
    std::unique_ptr<Block> take_block();

    /// Runs `call` here and now. Null is c10d's answer for "done, nothing to wait for" of a synchronous operation.
    WorkPtr run_now(const Call& call, std::chrono::milliseconds timeout);
    /// Runs, starts or defers an operation, as the caller asked for.
    WorkPtr launch(Operation&& operation, std::chrono::milliseconds timeout, bool async);
    WorkPtr launch_batch(std::vector<Operation> operations, std::chrono::milliseconds timeout, bool async);
    WorkPtr start(Operation& operation, std::chrono::milliseconds timeout);
    c10::intrusive_ptr<RequestWork> new_work(Completion completion);
    WorkPtr message(Tensors& tensors, c10d::OpType type, const char* name, const char* title, int peer, int tag);
    BackendPtr derive(const StorePtr& store, const c10::intrusive_ptr<c10d::Backend::Options>& options,
                      std::vector<uint64_t> global_ranks, int rank, int size) const;
    uint64_t global_rank(int rank) const;
    Communicator& sparse_communicator();
    std::string next_meeting();
    bool is_forked_child() const;

    const std::shared_ptr<StoreBootstrap> bootstrap_;
    std::shared_ptr<Communicator> communicator_; // changed by resume() alone
    const StorePtr store_;
    const OptionsPtr options_;
    const std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
    std::atomic<bool> special_{false};
    std::atomic<bool> suspended_{false};
    uint64_t sequence_before_ = 0; // operations before the last resume()
    std::mutex block_mutex_;
    std::unique_ptr<Block> block_; // guarded by block_mutex_
    std::mutex meeting_mutex_;
    uint64_t meeting_sequence_ = 0; // of the last monitored barrier; guarded by meeting_mutex_
    uint64_t meeting_ = 0;          // monitored barriers since that collective; guarded by meeting_mutex_
    std::atomic<uint64_t> shrinks_{0};
    std::mutex sparse_mutex_;
    std::shared_ptr<Communicator> sparse_; // made by the first sparse operation; guarded by sparse_mutex_
    SerialQueue sparse_queue_;
    const int owner_; // the process id
};

/// The sum over ranks of `mine` (CPU, COO): the union of the indices. Blocks; collective over `communicator`.
at::Tensor sum_sparse(Communicator& communicator, const at::Tensor& mine, bool average, int64_t timeout_ns);

} // namespace collectives
