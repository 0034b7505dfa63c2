// c10d's Work over the engine's Request: waiting, futures, completion hooks, timing.
// Included by the c10d bindings only. Any thread, with or without the GIL.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bindings/callback_executor.h"
#include "engine/request.h"

namespace collectives {

/// Engine nanoseconds of a c10d timeout: negative (the group's default) for kUnsetTimeout and kNoTimeout.
int64_t timeout_ns_of(std::chrono::milliseconds timeout);

/// The exception that c10d sees for a failed status; null when ok.
std::exception_ptr c10d_exception_of(const Status& status);

/// What a group keeps about its operations under way; works outlive their group, so they share it.
class Ledger : public std::enable_shared_from_this<Ledger> {
  public:
    using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

    void begin() { pending_.fetch_add(1, std::memory_order_relaxed); }
    void end();
    bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

    /// One hook a group, called once for every operation that ended, in the order in which they ended.
    void set_hook(Hook hook);
    bool has_hook() const { return has_hook_.load(std::memory_order_acquire); }
    void call_hook(std::shared_ptr<c10d::WorkInfo> info);

    /// Until every work that began has ended and its hook has returned.
    void wait_idle();

  private:
    std::atomic<int64_t> pending_{0};
    std::atomic<bool> has_hook_{false};
    std::mutex mutex_;
    std::condition_variable idle_;
    Hook hook_; // set before has_hook_, never changed
    SerialQueue hooks_;
};

/// What has to stay alive while an operation runs, and be done when it ends.
struct Completion {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* title = nullptr;                           // of the profiler's range: "collectives:all_reduce"
    std::vector<at::Tensor> inputs;                        // the caller's
    std::vector<at::Tensor> outputs;                       // the caller's: the work's result
    std::vector<at::Tensor> held;                          // packed copies that the engine reads
    std::vector<std::pair<at::Tensor, at::Tensor>> unpack; // (the caller's strided tensor, its packed stand-in)

    /// Copies packed results into the caller's strided tensors.
    void finish();
    /// Takes over what another operation needs, for several that end together.
    void add(Completion other);
};

/// The profiler's range around an operation on the caller's thread. Costs nanoseconds when nobody profiles.
class ProfiledRange {
  public:
    explicit ProfiledRange(const char* title);
    ProfiledRange(const char* title, const at::Tensor& input);
    explicit ProfiledRange(const Completion& completion);

  private:
    void begin(const char* title, c10::ArrayRef<at::Tensor> inputs);
    at::RecordFunction record_;
};

/// Common to all works of this backend: an end that comes once, results, futures.
class WorkBase : public c10d::Work {
  public:
    WorkBase(int rank, Completion completion, std::shared_ptr<Ledger> ledger);

    bool wait(std::chrono::milliseconds timeout) override = 0;
    std::vector<at::Tensor> result() override { return completion_.outputs; }
    void synchronize() override {}
    void blockCurrentStream() override { wait(kNoTimeout); }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
    float getDuration() const override { return static_cast<float>(duration_ns_.load()) * 1e-6f; } // milliseconds
    uint64_t getSequencenumber() const override { return sequence_; }

    /// Calls `then` once when this work ends, on the thread that ends it; at once when it has.
    void when_concluded(std::function<void(const std::exception_ptr&)> then);

  protected:
    /// Ends the work: copies strided results back (when `error` is null), then wakes waiters, futures and hooks.
    void conclude(std::exception_ptr error, c10d::WorkResult result, int64_t duration_ns);
    /// Blocks until conclude() is through, then rethrows its error.
    bool await_conclusion();

    Completion completion_;
    uint64_t sequence_ = 0;

  private:
    void resolve(const c10::intrusive_ptr<c10::ivalue::Future>& future,
                 const c10::intrusive_ptr<c10::ivalue::Future>& result_future);
    void report(int64_t duration_ns);

    const std::shared_ptr<Ledger> ledger_;
    std::atomic<int64_t> duration_ns_{0};
    std::mutex end_mutex_; // guards what follows
    bool concluded_ = false;
    c10d::WorkResult work_result_ = c10d::WorkResult::UNKNOWN;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    c10::intrusive_ptr<c10::ivalue::Future> result_future_;
    std::vector<std::function<void(const std::exception_ptr&)>> then_;
};

/// One request of the engine, or, in a coalescing block, a place in one that is started later.
class RequestWork final : public WorkBase {
  public:
    using WorkBase::WorkBase;

    /// Hands over the started operation. The work keeps itself alive until it ends: the engine uses its tensors.
    void attach(RequestPtr request);
    /// Ends a work that will never be started.
    void abandon(const Status& why);

    bool wait(std::chrono::milliseconds timeout) override;
    int sourceRank() const override;
    void abort() override;

  private:
    void on_complete(const Status& status);
    std::atomic<bool> attached_{false};
    RequestPtr request_; // written once, before attached_
};

/// Several works that end together (a coalescing block).
class GroupWork final : public WorkBase {
  public:
    static c10::intrusive_ptr<GroupWork> of(int rank, std::vector<c10::intrusive_ptr<WorkBase>> members,
                                            std::shared_ptr<Ledger> ledger);
    using WorkBase::WorkBase;

    bool wait(std::chrono::milliseconds timeout) override;
    void abort() override;

  private:
    void member_ended(const std::exception_ptr& error);
    std::vector<c10::intrusive_ptr<WorkBase>> members_;
    std::mutex count_mutex_; // guards what follows
    size_t left_ = 0;
    std::exception_ptr first_error_;
};

/// A work that a function of ours does on another thread (the steps of a sparse all-reduce).
class TaskWork final : public WorkBase {
  public:
    using WorkBase::WorkBase;

    /// Runs `task` on `queue`; what it throws is the work's error.
    static void run(const c10::intrusive_ptr<TaskWork>& work, SerialQueue& queue, Task task);
    bool wait(std::chrono::milliseconds timeout) override;
    void abort() override { abort_(); }
    void set_abort(Task abort) { abort_ = std::move(abort); }
    void set_sequence(uint64_t sequence) { sequence_ = sequence; }

  private:
    Task abort_;
};

} // namespace collectives
