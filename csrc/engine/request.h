// Request: an operation that was started and may still be running. Shared by the engine, which completes it, and its
// owner, who waits. c10d calls the same thing a work.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"

namespace collectives {

class Request : public std::enable_shared_from_this<Request> {
  public:
    virtual ~Request() = default;

    /// True once the operation has ended, well or badly. Never blocks.
    bool done() const { return done_.load(std::memory_order_acquire); }

    /// Ok while running and after success; the error after a failure.
    Status status() const;

    /// Blocks until the operation ends or `timeout_ns` has passed (negative: the operation's own deadline). Runs the
    /// operation on the caller's thread where it can. A timeout here fails the communicator: its peers would wait.
    Status wait(int64_t timeout_ns = -1);

    /// Calls `callback` once when the operation ends, on whichever thread ends it; at once if it has ended. It must not
    /// block nor call into the communicator.
    void on_complete(std::function<void(const Status&)> callback);

    /// Point-to-point: the rank that the message came from (of interest with any-source); -1 before it is known.
    int source() const { return source_.load(std::memory_order_acquire); }

    /// From start to end, nanoseconds; 0 while running.
    int64_t duration_ns() const { return duration_ns_.load(std::memory_order_acquire); }

    /// The operation's sequence number in its communicator.
    uint64_t sequence() const { return sequence_; }

    /// Makes this operation fail with `aborted` and with it the communicator.
    virtual void abort() = 0;

  protected:
    virtual Status drive_until_done(int64_t timeout_ns) = 0;
    void complete(const Status& status); // once; publishes status, then runs the callbacks

    std::atomic<bool> done_{false};
    std::atomic<int> source_{-1};
    std::atomic<int64_t> duration_ns_{0};
    uint64_t sequence_ = 0;
    int64_t started_ns_ = 0;

  private:
    mutable std::mutex mutex_; // guards the two below
    Status status_;
    std::vector<std::function<void(const Status&)>> callbacks_;
};

using RequestPtr = std::shared_ptr<Request>;

} // namespace collectives
