// Request: completion, callbacks and waiting, common to collectives and messages.
#include "engine/request.h"

#include "base/clock.h"
#include "engine/communicator_impl.h"

namespace collectives {

Status Request::status() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return status_;
}

Status Request::wait(int64_t timeout_ns) {
    if (!done()) {
        Status driven = drive_until_done(timeout_ns);
        if (!done())
            return driven;
    }
    return status();
}

void Request::on_complete(std::function<void(const Status&)> callback) {
    Status now;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!done_.load(std::memory_order_acquire)) {
            callbacks_.push_back(std::move(callback));
            return;
        }
        now = status_;
    }
    callback(now);
}

void Request::complete(const Status& status) {
    std::vector<std::function<void(const Status&)>> callbacks;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (done_.load(std::memory_order_relaxed))
            return;
        status_ = status;
        if (started_ns_ != 0)
            duration_ns_.store(std::max<int64_t>(1, monotonic_ns() - started_ns_), std::memory_order_release);
        done_.store(true, std::memory_order_release);
        callbacks.swap(callbacks_);
    }
    for (auto& callback : callbacks) callback(status);
}

JointRequest::JointRequest(std::vector<RequestPtr> parts) : parts_(std::move(parts)), left_(int(parts_.size())) {
    started_ns_ = monotonic_ns();
}

RequestPtr JointRequest::make(std::vector<RequestPtr> parts) {
    if (parts.empty())
        return std::make_shared<EndedRequest>(Status());
    auto joint = std::make_shared<JointRequest>(std::move(parts));
    joint->sequence_ = joint->parts_.front()->sequence();
    for (auto& part : joint->parts_)
        part->on_complete([joint](const Status&) {
            if (joint->left_.fetch_sub(1, std::memory_order_acq_rel) != 1)
                return;
            Status first;
            for (auto& each : joint->parts_)
                if (first.ok())
                    first = each->status();
            joint->complete(first);
        });
    return joint;
}

void JointRequest::abort() {
    for (auto& part : parts_) part->abort();
}

Status JointRequest::drive_until_done(int64_t timeout_ns) {
    Status first;
    for (auto& part : parts_)
        if (Status status = part->wait(timeout_ns); first.ok())
            first = status;
    return first;
}

} // namespace collectives
