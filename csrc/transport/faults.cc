// Drawing delays, orders and the moment of death.
#include "transport/faults.h"

#include <cmath>
#include <ctime>

#include "base/clock.h"

namespace collectives {
namespace {

enum Stream : uint64_t { kDelays = 1, kDelayLengths, kReorders, kChoices };

uint64_t mix(uint64_t value) { // the finaliser of splitmix64
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

/// In [0, 1).
double uniform(uint64_t bits) { return double(bits >> 11) * 0x1p-53; }

bool is_probability(double value) { return std::isfinite(value) && value >= 0 && value <= 1; }

/// Gives the core away until then: where ranks are threads, the others need it.
void wait_until(int64_t deadline_ns) {
    for (int64_t left; (left = deadline_ns - monotonic_ns()) > 0;) {
        timespec t{time_t(left / kSecond), long(left % kSecond)};
        nanosleep(&t, nullptr);
    }
}

} // namespace

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
    return mix(mix(mix(seed + 0x9e3779b97f4a7c15ull) + stream * 0x9e3779b97f4a7c15ull) + index);
}

Status check_plan(const FaultPlan& plan) {
    if (!is_probability(plan.delay_probability) || !is_probability(plan.reorder_probability))
        return Status(Code::invalid_argument, "fault plan: a probability must lie between 0 and 1, not " +
                                                  std::to_string(plan.delay_probability) + " (delay) or " +
                                                  std::to_string(plan.reorder_probability) + " (reorder)");
    if (plan.max_delay_ns < 0)
        return Status(Code::invalid_argument,
                      "fault plan: max_delay_ns is " + std::to_string(plan.max_delay_ns) + "; it must not be negative");
    return {};
}

Faults::Faults(const FaultPlan& plan, std::function<void()> vanish) : plan_(plan), vanish_(std::move(vanish)) {}

int64_t Faults::delay_ns(uint64_t publication) const {
    if (uniform(random_bits(plan_.seed, kDelays, publication)) >= plan_.delay_probability)
        return 0;
    return int64_t(uniform(random_bits(plan_.seed, kDelayLengths, publication)) * double(plan_.max_delay_ns));
}

bool Faults::reorders(uint64_t message) const {
    return uniform(random_bits(plan_.seed, kReorders, message)) < plan_.reorder_probability;
}

bool Faults::may_publish() {
    if (dead())
        return false;
    if (int64_t delay = delay_ns(attempts_.fetch_add(1, std::memory_order_relaxed)); delay > 0)
        wait_until(deadline_after(monotonic_ns(), delay));
    if (plan_.drop_after_publications == 0)
        die();
    return !dead(); // another thread may have published the last one meanwhile
}

void Faults::published() {
    const uint64_t count = published_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (plan_.drop_after_publications >= 0 && count >= uint64_t(plan_.drop_after_publications))
        die();
}

void Faults::die() {
    if (!dead_.exchange(true, std::memory_order_acq_rel) && !plan_.silent_death)
        vanish_();
}

bool Faults::reorders() { return !dead() && reorders(messages_.fetch_add(1, std::memory_order_relaxed)); }

uint64_t Faults::choose(uint64_t n) {
    return random_bits(plan_.seed, kChoices, choices_.fetch_add(1, std::memory_order_relaxed)) % n;
}

} // namespace collectives
