// The timeouts of stores that are bounded at the moment. See store_timeout.h.
#include "bindings/store_timeout.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>

#include "base/clock.h"

namespace collectives {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kGrace = 1 * kSecond; // a healthy store answers in that: who is missing is still found out

struct Bounded {
    int users = 0;
    milliseconds before{0};
};

std::mutex mutex; // guards stores(), and that of two users one restores what the other has set
std::map<c10d::Store*, Bounded>& stores() {
    static auto* const all = new std::map<c10d::Store*, Bounded>; // outlives threads that wait at exit
    return *all;
}

c10d::Store& behind_prefixes(c10d::Store& store) {
    c10d::Store* at = &store;
    while (auto* prefix = dynamic_cast<c10d::PrefixStore*>(at)) at = prefix->getUnderlyingStore().get();
    return *at;
}

} // namespace

StoreTimeout::StoreTimeout(c10d::Store& store, int64_t deadline_ns) : store_(behind_prefixes(store)) {
    const std::lock_guard lock(mutex);
    Bounded& bounded = stores()[&store_];
    const milliseconds now = store_.getTimeout();
    if (bounded.users++ == 0)
        bounded.before = now;
    const milliseconds left(std::max(kGrace, deadline_ns - monotonic_ns()) / kMillisecond);
    if (now == c10d::Store::kNoTimeout || left < now)
        store_.setTimeout(left);
}

StoreTimeout::~StoreTimeout() {
    const std::lock_guard lock(mutex);
    const auto at = stores().find(&store_);
    if (--at->second.users > 0)
        return;
    store_.setTimeout(at->second.before);
    stores().erase(at);
}

} // namespace collectives
