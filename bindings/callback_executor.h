// Threads for what a completed operation sets off: futures with their callbacks, completion hooks, sparse operations.
// None of it may run on the engine's progress thread, since a callback may start and await the next operation.
// Included by the c10d bindings only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace collectives {

using Task = std::function<void()>;

/// Runs tasks on a pool that grows when every thread is busy (a callback may block on another task) and shrinks when
/// idle. One a process, never destroyed.
class CallbackExecutor {
  public:
    static CallbackExecutor& instance();

    /// Any thread. After stop(), and in a forked child, the task is dropped.
    void post(Task task);

    /// Ends the threads; waits at most `bound_ns` for those that are busy. Called once, before Python's exit.
    void stop(int64_t bound_ns);

  private:
    struct State;
    CallbackExecutor();
    std::shared_ptr<State> state_;
};

/// Tasks that run one after the other, in the order of post(), on the executor's threads.
class SerialQueue {
  public:
    SerialQueue();
    void post(Task task);

  private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace collectives
