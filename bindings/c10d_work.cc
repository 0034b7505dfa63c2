// Works: what c10d and Python hold while an operation runs. See c10d_work.h.
#include "bindings/c10d_work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_type.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/clock.h"
#include "bindings/errors.h"
#include "bindings/store_bootstrap.h"

namespace collectives {
namespace {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

/// The profiler's range costs an allocation, so it is only asked for when somebody profiles.
const char* title_if_profiled(const Completion& completion) {
    return completion.title != nullptr && at::hasCallbacks() ? completion.title : nullptr;
}

c10d::WorkResult result_of(const Status& status) {
    if (status.ok())
        return c10d::WorkResult::SUCCESS;
    return status.code() == Code::timeout ? c10d::WorkResult::TIMEOUT : c10d::WorkResult::COMM_ERROR;
}

void settle(const FuturePtr& future, c10::IValue value, const std::exception_ptr& error) {
    if (!future)
        return;
    if (error)
        future->setError(error);
    else
        future->markCompleted(std::move(value));
}

} // namespace

int64_t timeout_ns_of(std::chrono::milliseconds timeout) {
    return timeout.count() <= 0 ? -1 : std::chrono::nanoseconds(timeout).count();
}

std::exception_ptr c10d_exception_of(const Status& status) {
    if (status.ok())
        return nullptr;
    try {
        // Ctrl-C belongs to the thread that waits; everybody else sees an operation that failed.
        throw_c10d(status.code() == Code::interrupted ? Status(Code::aborted, status.message()) : status);
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

// ---- Ledger ---------------------------------------------------------------------------------------------------------

void Ledger::end() {
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) != 1)
        return;
    const std::lock_guard lock(mutex_);
    idle_.notify_all();
}

void Ledger::set_hook(Hook hook) {
    TORCH_CHECK(!has_hook(), "collectives: this process group has a completion hook already; one a group");
    hook_ = std::move(hook);
    has_hook_.store(true, std::memory_order_release);
}

void Ledger::call_hook(std::shared_ptr<c10d::WorkInfo> info) {
    begin();
    hooks_.post([self = shared_from_this(), info = std::move(info)] {
        try {
            self->hook_(info);
        } catch (const std::exception& error) {
            TORCH_WARN("collectives: a completion hook raised: ", error.what());
        }
        self->end();
    });
}

void Ledger::wait_idle() {
    const ReleaseGil no_gil;
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return idle(); });
}

// ---- Completion -----------------------------------------------------------------------------------------------------

void Completion::finish() {
    if (unpack.empty())
        return;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (auto& [strided, packed] : unpack) strided.copy_(packed);
}

void Completion::add(Completion other) {
    const auto append = [](auto& to, auto& from) {
        to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    };
    append(inputs, other.inputs);
    append(outputs, other.outputs);
    append(held, other.held);
    append(unpack, other.unpack);
}

// ---- ProfiledRange --------------------------------------------------------------------------------------------------

ProfiledRange::ProfiledRange(const char* title) : record_(at::RecordScope::USER_SCOPE) {
    if (record_.isActive())
        begin(title, {});
}

ProfiledRange::ProfiledRange(const char* title, const at::Tensor& input) : record_(at::RecordScope::USER_SCOPE) {
    if (record_.isActive())
        begin(title, input);
}

ProfiledRange::ProfiledRange(const Completion& completion) : record_(at::RecordScope::USER_SCOPE) {
    if (record_.isActive())
        begin(completion.title, completion.inputs);
}

void ProfiledRange::begin(const char* title, c10::ArrayRef<at::Tensor> inputs) {
    record_._setAsync(); // as every c10d backend's ranges are, whichever thread does the work
    const std::vector<c10::IValue> values(inputs.begin(), inputs.end());
    record_.before(title, c10::ArrayRef<const c10::IValue>(values.data(), values.size()));
}

// ---- WorkBase -------------------------------------------------------------------------------------------------------

WorkBase::WorkBase(int rank, Completion completion, std::shared_ptr<Ledger> ledger)
    : Work(rank, completion.type, title_if_profiled(completion), completion.inputs), completion_(std::move(completion)),
      ledger_(std::move(ledger)) {
    ledger_->begin();
}

void WorkBase::conclude(std::exception_ptr error, c10d::WorkResult result, int64_t duration_ns) {
    if (!error) {
        try {
            completion_.finish();
        } catch (...) {
            error = std::current_exception();
            result = c10d::WorkResult::UNKNOWN;
        }
    }
    duration_ns_.store(duration_ns);
    finish(error);
    FuturePtr future;
    FuturePtr result_future;
    std::vector<std::function<void(const std::exception_ptr&)>> then;
    {
        const std::lock_guard lock(end_mutex_);
        concluded_ = true;
        work_result_ = result;
        future = future_;
        result_future = result_future_;
        then.swap(then_);
    }
    if (future || result_future) {
        auto self = c10::intrusive_ptr<WorkBase>::unsafe_reclaim_from_nonowning(this);
        CallbackExecutor::instance().post([self, future, result_future] { self->resolve(future, result_future); });
    }
    for (const auto& call : then) call(error);
    report(duration_ns);
    completion_.held.clear();
    completion_.unpack.clear();
    completion_.inputs.clear();
    ledger_->end();
}

void WorkBase::report(int64_t duration_ns) {
    if (!ledger_->has_hook())
        return;
    const auto now = std::chrono::steady_clock::now();
    const auto span = std::chrono::nanoseconds(duration_ns);
    ledger_->call_hook(std::make_shared<c10d::WorkInfo>(retrieveOpType(), sequence_, now - span, now,
                                                        std::chrono::duration<float>(span)));
}

void WorkBase::resolve(const FuturePtr& future, const FuturePtr& result_future) {
    settle(future, c10::IValue(completion_.outputs), exception());
    settle(result_future, c10::IValue(static_cast<int64_t>(work_result_)), nullptr);
}

FuturePtr WorkBase::getFuture() {
    const std::lock_guard lock(end_mutex_);
    if (!future_) {
        future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
        if (concluded_)
            settle(future_, c10::IValue(completion_.outputs), exception());
    }
    return future_;
}

FuturePtr WorkBase::getFutureResult() {
    const std::lock_guard lock(end_mutex_);
    if (!result_future_) {
        result_future_ = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
        if (concluded_)
            settle(result_future_, c10::IValue(static_cast<int64_t>(work_result_)), nullptr);
    }
    return result_future_;
}

void WorkBase::when_concluded(std::function<void(const std::exception_ptr&)> then) {
    {
        const std::lock_guard lock(end_mutex_);
        if (!concluded_) {
            then_.push_back(std::move(then));
            return;
        }
    }
    then(exception());
}

bool WorkBase::await_conclusion() {
    std::unique_lock lock(mutex_);
    cv_.wait(lock, [this] { return completed_; });
    const std::exception_ptr error = exception_;
    lock.unlock();
    if (error)
        std::rethrow_exception(error);
    return true;
}

// ---- RequestWork ----------------------------------------------------------------------------------------------------

void RequestWork::attach(RequestPtr request) {
    request_ = std::move(request);
    sequence_ = request_->sequence();
    attached_.store(true, std::memory_order_release);
    // The raw pointer fits into std::function without an allocation; the count is given back in on_complete.
    c10::raw::intrusive_ptr::incref(this);
    request_->on_complete([this](const Status& status) {
        on_complete(status);
        c10::raw::intrusive_ptr::decref(this);
    });
}

void RequestWork::abandon(const Status& why) { conclude(c10d_exception_of(why), result_of(why), 0); }

void RequestWork::on_complete(const Status& status) {
    conclude(c10d_exception_of(status), result_of(status), request_->duration_ns());
}

bool RequestWork::wait(std::chrono::milliseconds timeout) {
    const ReleaseGil no_gil;
    if (attached_.load(std::memory_order_acquire)) {
        if (!request_->done()) {
            const Status status = request_->wait(timeout_ns_of(timeout));
            if (status.code() == Code::interrupted || (!status.ok() && !request_->done()))
                throw_c10d(status);
        }
    } else {
        TORCH_CHECK(isCompleted(), "collectives: this operation belongs to a coalescing block that has not ended yet: "
                                   "wait for the block's work, after the block");
    }
    return await_conclusion();
}

int RequestWork::sourceRank() const {
    const bool received = opType_ == c10d::OpType::RECV || opType_ == c10d::OpType::RECVANYSOURCE;
    TORCH_CHECK(received && attached_.load(std::memory_order_acquire),
                "collectives: only a receive has a source rank, not ", c10d::opTypeToString(opType_));
    return request_->source();
}

void RequestWork::abort() {
    if (attached_.load(std::memory_order_acquire))
        request_->abort();
}

// ---- GroupWork ------------------------------------------------------------------------------------------------------

c10::intrusive_ptr<GroupWork> GroupWork::of(int rank, std::vector<c10::intrusive_ptr<WorkBase>> members,
                                            std::shared_ptr<Ledger> ledger) {
    Completion completion;
    completion.type = c10d::OpType::COALESCED;
    for (const auto& member : members)
        for (at::Tensor& output : member->result()) completion.outputs.push_back(std::move(output));
    auto group = c10::make_intrusive<GroupWork>(rank, std::move(completion), std::move(ledger));
    group->left_ = members.size() + 1; // one more, so that it ends only when all are registered
    group->members_ = std::move(members);
    for (const auto& member : group->members_)
        member->when_concluded([group](const std::exception_ptr& error) { group->member_ended(error); });
    group->member_ended(nullptr);
    return group;
}

void GroupWork::member_ended(const std::exception_ptr& error) {
    std::exception_ptr first;
    {
        const std::lock_guard lock(count_mutex_);
        if (error && !first_error_)
            first_error_ = error;
        if (--left_ > 0)
            return;
        first = first_error_;
    }
    int64_t longest_ns = 0;
    for (const auto& member : members_)
        longest_ns = std::max(longest_ns, static_cast<int64_t>(member->getDuration() * 1e6f));
    conclude(first, first ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS, longest_ns);
}

bool GroupWork::wait(std::chrono::milliseconds timeout) {
    const ReleaseGil no_gil;
    for (const auto& member : members_) member->wait(timeout); // on this thread, where it can
    return await_conclusion();
}

void GroupWork::abort() {
    for (const auto& member : members_) member->abort();
}

// ---- TaskWork -------------------------------------------------------------------------------------------------------

void TaskWork::run(const c10::intrusive_ptr<TaskWork>& work, SerialQueue& queue, Task task) {
    queue.post([work, task = std::move(task)] {
        const int64_t began_ns = monotonic_ns();
        std::exception_ptr error;
        try {
            task();
        } catch (...) {
            error = std::current_exception();
        }
        work->conclude(error, error ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS,
                       monotonic_ns() - began_ns);
    });
}

bool TaskWork::wait(std::chrono::milliseconds timeout) {
    constexpr int64_t kSlice = 100 * kMillisecond; // the longest that Ctrl-C waits for us
    const ReleaseGil no_gil;
    const int64_t timeout_ns = timeout_ns_of(timeout);
    const int64_t deadline_ns = timeout_ns < 0 ? kForever : deadline_after(monotonic_ns(), timeout_ns);
    for (;;) {
        const int64_t slice_ns = std::min(kSlice, deadline_ns - monotonic_ns());
        {
            std::unique_lock lock(mutex_);
            if (cv_.wait_for(lock, std::chrono::nanoseconds(slice_ns), [this] { return completed_; }))
                break;
        }
        if (signal_raised()) {
            abort();
            throw_c10d(Status(Code::interrupted, "interrupted"));
        }
        if (monotonic_ns() >= deadline_ns) {
            abort(); // the peers would wait for us: fail the group, as a request's timeout does
            break;
        }
    }
    return await_conclusion();
}

} // namespace collectives
