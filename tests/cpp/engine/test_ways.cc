// The choice of ways: the turns that all ranks count alike, and what the measured times decide.
#include "engine/ways.h"

#include <vector>

#include <doctest/doctest.h>

using namespace collectives;

namespace {

constexpr WaySet kAll = way_bit(Way::staged) | way_bit(Way::streamed) | way_bit(Way::pulled);
constexpr auto kKind = Collective::all_gather;

/// The tries of one period, with the given nanoseconds for each way, and what is decided after them.
Way measured(WayChooser& chooser, WaySet allowed, const std::vector<int64_t>& ns) {
    for (;;) {
        Turn turn = chooser.next_turn(kKind, 3, allowed);
        if (turn.kind == Turn::decide)
            return chooser.best(kKind, 3, allowed);
        REQUIRE(turn.kind == Turn::try_one);
        chooser.record(kKind, 3, turn.way, ns[size_t(turn.way)]);
    }
}

} // namespace

TEST_CASE("every allowed way is tried, then one is decided on, then used until the period is over") {
    WayChooser chooser;
    for (WaySet allowed : {kAll, way_bit(Way::staged) | way_bit(Way::pulled)}) {
        chooser = WayChooser();
        for (int period = 0; period < 2; ++period) {
            std::vector<int> tries(kWayCount);
            int decisions = 0;
            const int64_t length = period == 0 ? WayChooser::kFirstPeriod : WayChooser::kPeriod;
            for (int64_t call = 0; call < length; ++call) {
                Turn turn = chooser.next_turn(kKind, 0, allowed);
                CHECK((turn.kind == Turn::use || decisions == 0)); // first tries, then the decision
                decisions += turn.kind == Turn::decide;
                if (turn.kind == Turn::try_one)
                    ++tries[size_t(turn.way)];
            }
            CHECK(decisions == 1);
            for (int way = 0; way < kWayCount; ++way)
                CHECK(tries[size_t(way)] == ((allowed & way_bit(Way(way))) != 0 ? WayChooser::kTries : 0));
        }
    }
}

TEST_CASE("the fastest way is taken, an earlier one unless it is beaten clearly") {
    WayChooser chooser;
    CHECK(measured(chooser, kAll, {100, 200, 50}) == Way::pulled);
    chooser = WayChooser();
    CHECK(measured(chooser, kAll, {100, 97, 99}) == Way::staged);
    chooser = WayChooser();
    CHECK(measured(chooser, kAll, {100, 90, 80}) == Way::pulled);
    chooser = WayChooser();
    CHECK(measured(chooser, way_bit(Way::streamed) | way_bit(Way::pulled), {1, 100, 200}) == Way::streamed);
}

TEST_CASE("one disturbed call does not decide, and nothing measured means staged") {
    WayChooser chooser;
    CHECK(chooser.best(kKind, 3, kAll) == Way::staged);
    chooser.record(kKind, 3, Way::staged, 100);
    chooser.record(kKind, 3, Way::pulled, 5000);
    chooser.record(kKind, 3, Way::pulled, 60);
    CHECK(chooser.best(kKind, 3, kAll) == Way::pulled);
    CHECK(chooser.best(kKind, 4, kAll) == Way::staged); // another size
    CHECK(chooser.best(Collective::all_reduce, 3, kAll) == Way::staged);
}

TEST_CASE("a new period forgets the old times") {
    WayChooser chooser;
    CHECK(measured(chooser, kAll, {100, 200, 50}) == Way::pulled);
    while (chooser.next_turn(kKind, 3, kAll).kind != Turn::try_one) {
    }
    CHECK(chooser.best(kKind, 3, kAll) == Way::staged);
}

TEST_CASE("classes double, and small blocks have none") {
    CHECK(way_class(kWaysFromBytes) == 0);
    CHECK(way_class(2 * kWaysFromBytes - 1) == 0);
    CHECK(way_class(2 * kWaysFromBytes) == 1);
    CHECK(way_class(int64_t(1) << 50) == kWayClasses - 1);
    WayTable table;
    table.set(0, Way::streamed);
    table.set(kWayClasses - 1, Way::pulled);
    CHECK(WayTable(table.word()).of(kWaysFromBytes - 1) == Way::staged);
    CHECK(WayTable(table.word()).of(kWaysFromBytes) == Way::streamed);
    CHECK(WayTable(table.word()).of(2 * kWaysFromBytes) == Way::staged);
    CHECK(WayTable(table.word()).of(int64_t(1) << 50) == Way::pulled);
}
