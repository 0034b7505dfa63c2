// The elastic pool and the serial queue. See callback_executor.h.
#include "bindings/callback_executor.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace collectives {
namespace {
constexpr auto kIdle = std::chrono::seconds(10); // an unused thread ends after this
}

struct CallbackExecutor::State {
    std::mutex mutex;
    std::condition_variable wake;    // a task came, or stop
    std::condition_variable stopped; // a thread ended
    std::deque<Task> tasks;
    size_t idle = 0;
    size_t threads = 0;
    bool stopping = false;
    const pid_t owner = getpid();

    void work() {
        std::unique_lock lock(mutex);
        for (;;) {
            ++idle;
            const bool woken = wake.wait_for(lock, kIdle, [this] { return stopping || !tasks.empty(); });
            --idle;
            if (stopping || !woken)
                break;
            Task task = std::move(tasks.front());
            tasks.pop_front();
            lock.unlock();
            task();
            task = nullptr; // its captures go before the lock comes: they may take the GIL
            lock.lock();
        }
        --threads;
        stopped.notify_all();
    }
};

CallbackExecutor::CallbackExecutor() : state_(std::make_shared<State>()) {}

CallbackExecutor& CallbackExecutor::instance() {
    static auto* const executor = new CallbackExecutor;
    return *executor;
}

void CallbackExecutor::post(Task task) {
    State& state = *state_;
    if (state.owner != getpid())
        return; // forked: the threads are the parent's, and the lock may be held for ever
    const std::lock_guard lock(state.mutex);
    if (state.stopping)
        return;
    state.tasks.push_back(std::move(task));
    if (state.idle >= state.tasks.size()) {
        state.wake.notify_one();
        return;
    }
    ++state.threads;
    std::thread thread([keep = state_] { keep->work(); });
    pthread_setname_np(thread.native_handle(), "coll-callback");
    thread.detach();
}

void CallbackExecutor::stop(int64_t bound_ns) {
    State& state = *state_;
    if (state.owner != getpid())
        return;
    std::deque<Task> dropped;
    std::unique_lock lock(state.mutex);
    state.stopping = true;
    dropped.swap(state.tasks);
    state.wake.notify_all();
    state.stopped.wait_for(lock, std::chrono::nanoseconds(bound_ns), [&] { return state.threads == 0; });
}

struct SerialQueue::State {
    std::mutex mutex;
    std::deque<Task> tasks;
    bool running = false;

    void drain() {
        for (;;) {
            Task task;
            {
                const std::lock_guard lock(mutex);
                if (tasks.empty()) {
                    running = false;
                    return;
                }
                task = std::move(tasks.front());
                tasks.pop_front();
            }
            task();
        }
    }
};

SerialQueue::SerialQueue() : state_(std::make_shared<State>()) {}

void SerialQueue::post(Task task) {
    {
        const std::lock_guard lock(state_->mutex);
        state_->tasks.push_back(std::move(task));
        if (std::exchange(state_->running, true))
            return;
    }
    CallbackExecutor::instance().post([keep = state_] { keep->drain(); });
}

} // namespace collectives
