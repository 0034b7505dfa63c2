// The draws of a fault plan: pure functions of the seed, as often and as long as the plan says; and when a node dies.
#include <doctest/doctest.h>

#include "base/clock.h"
#include "transport/faults.h"

using namespace collectives;

namespace {

FaultPlan plan_with_seed(uint64_t seed) {
    FaultPlan plan;
    plan.seed = seed;
    plan.delay_probability = 0.25;
    plan.max_delay_ns = 1000;
    plan.reorder_probability = 0.5;
    return plan;
}

} // namespace

TEST_CASE("a seed gives the same faults each time, another seed others") {
    Faults one(plan_with_seed(1), [] {}), again(plan_with_seed(1), [] {}), other(plan_with_seed(2), [] {});
    int delays = 0, reorders = 0, same_delays = 0, same_orders = 0;
    int64_t longest = 0;
    for (uint64_t i = 0; i < 4000; ++i) {
        CHECK(one.delay_ns(i) == again.delay_ns(i));
        CHECK(one.reorders(i) == again.reorders(i));
        delays += one.delay_ns(i) > 0;
        reorders += one.reorders(i);
        longest = std::max(longest, one.delay_ns(i));
        same_delays += one.delay_ns(i) == other.delay_ns(i);
        same_orders += one.reorders(i) == other.reorders(i);
        CHECK(one.choose(3) == again.choose(3));
    }
    CHECK(delays == doctest::Approx(1000).epsilon(0.1));
    CHECK(reorders == doctest::Approx(2000).epsilon(0.1));
    CHECK(longest < 1000);
    CHECK(longest > 950);
    CHECK(same_delays < 2500); // both without one: 0.75 squared
    CHECK(same_orders == doctest::Approx(2000).epsilon(0.1));
}

TEST_CASE("without a plan nothing happens") {
    Faults faults({}, [] { FAIL("nobody dies"); });
    for (int i = 0; i < 1000; ++i) {
        CHECK(faults.may_publish());
        faults.published();
        CHECK(!faults.reorders());
        CHECK(faults.delay_ns(uint64_t(i)) == 0);
    }
    CHECK(!faults.dead());
}

TEST_CASE("a node dies once, after the last publication that it may make") {
    for (int64_t allowed : {0, 1, 5}) {
        FaultPlan plan;
        plan.drop_after_publications = allowed;
        int vanished = 0;
        Faults faults(plan, [&] { ++vanished; });
        for (int64_t i = 0; i < allowed; ++i) {
            CHECK(vanished == 0);
            REQUIRE(faults.may_publish());
            faults.published();
        }
        CHECK(!faults.may_publish());
        CHECK(!faults.may_publish());
        CHECK(faults.dead());
        CHECK(vanished == 1);
    }
}

TEST_CASE("a silent death shows nobody") {
    FaultPlan plan;
    plan.drop_after_publications = 1;
    plan.silent_death = true;
    Faults faults(plan, [] { FAIL("it was to be silent"); });
    CHECK(faults.may_publish());
    faults.published();
    CHECK(faults.dead());
}

TEST_CASE("a delay is waited for") {
    FaultPlan plan;
    plan.delay_probability = 1;
    plan.max_delay_ns = 2'000'000;
    Faults faults(plan, [] {});
    int64_t drawn = 0;
    const int64_t began = monotonic_ns();
    for (uint64_t i = 0; i < 5; ++i) {
        drawn += faults.delay_ns(i);
        CHECK(faults.may_publish());
    }
    CHECK(drawn > 0);
    CHECK(monotonic_ns() - began >= drawn);
}
