// Predicted times: simple programs by hand, every row to its end, and the probes' costs found again.
#include <cmath>

#include <doctest/doctest.h>

#include "algorithms/program_probe.h"

using namespace collectives;

namespace {

/// Round numbers, each of another size, so that a cost left out or taken twice shows.
LinkCosts some_costs() {
    LinkCosts c;
    c.call_ns = 1000;
    c.latency_ns = 40000;
    c.frame_ns = 3000;
    c.port_ns = {0, 5000, 40000, 170000, 700000, 2900000};
    c.reduce_byte_ns = 0.25;
    c.copy_byte_ns = 0.125;
    return c;
}

struct Asked {
    Call call;
    Shape shape;
    Asked(Collective kind, int ranks, int64_t count, DType dtype = DType::f32) {
        call.kind = kind;
        call.dtype = dtype;
        call.in.count = call.out.count = count;
        shape.call = &call;
        shape.world_size = ranks;
        shape.element_bytes = int64_t(size_of(dtype));
        shape.count = count;
        shape.piece_bytes = 512 << 10;
    }
    Asked(const Asked&) = delete;
};

double predicted(const WireAlgorithm& row, const Shape& shape, const LinkCosts& costs) {
    return predict_ns(programs_of_all(row, shape), shape.element_bytes, costs);
}

} // namespace

TEST_CASE("program cost: a frame's time in the port is a line between the points, and goes on after the last") {
    LinkCosts c = some_costs();
    CHECK(c.port_of(0) == 0);
    CHECK(c.port_of(64) == doctest::Approx(0));
    CHECK(c.port_of(32 << 10) == doctest::Approx(40000));
    CHECK(c.port_of((32 << 10) + (48 << 10)) == doctest::Approx(105000));
    CHECK(c.port_of(int64_t(2 << 20) + (3 << 19)) == doctest::Approx(2900000 + 2200000));
}

TEST_CASE("program cost: an exchange of two is a call, a frame at either end, the way, and the sum") {
    Asked asked(Collective::all_reduce, 2, 8192);
    const WireAlgorithm* row = find_wire_algorithm("all_reduce_exchange");
    REQUIRE(row != nullptr);
    CHECK(predicted(*row, asked.shape, some_costs()) ==
          doctest::Approx(1000 + 3000 + 40000 + 40000 + 3000 + 2 * 32768 * 0.25));
}

TEST_CASE("program cost: more than a peer may get early waits until it has begun") {
    Asked small(Collective::all_to_all, 2, 16 << 10), large(Collective::all_to_all, 2, 32 << 10);
    LinkCosts c = some_costs();
    const WireAlgorithm* row = find_wire_algorithm("all_to_all_pairwise");
    REQUIRE(row != nullptr);
    const double copies = (32 << 10) * 4 * c.copy_byte_ns;
    CHECK(predicted(*row, small.shape, c) == doctest::Approx(1000 + 3000 + c.port_of(64 << 10) + 40000 + 3000));
    CHECK(predicted(*row, large.shape, c) ==
          doctest::Approx(1000 + (40000 + 2 * 3000) + 3000 + c.port_of(128 << 10) + 40000 + 3000).epsilon(0.01));
    CHECK(copies < 40000); // hidden behind the way
}

TEST_CASE("program cost: every algorithm between hosts comes to its end on the clock") {
    int rows = 0;
    for (int i = 0; i < kWireAlgorithmCount; ++i)
        for (int ranks : {2, 3, 5, 8, 13})
            for (int64_t count : {0, 1, 1000, 700000}) {
                Asked asked(kWireAlgorithms[i]->kind, ranks, count);
                if (!kWireAlgorithms[i]->applies(asked.shape))
                    continue;
                CAPTURE(kWireAlgorithms[i]->name);
                CAPTURE(ranks);
                CAPTURE(count);
                double least = predicted(*kWireAlgorithms[i], asked.shape, some_costs());
                CHECK(least >= 1000);
                if (count >= 1000)
                    CHECK(least >= 46000); // something travels
                ++rows;
            }
    CHECK(rows > 150);
}

TEST_CASE("program cost: what the probes take tells the costs") {
    const LinkCosts truth = some_costs();
    for (int ranks : {2, 3, 4, 8, 16}) {
        CAPTURE(ranks);
        ProbeTimes times;
        auto took = [&](const WireAlgorithm& probe, int64_t bytes) {
            Asked asked(Collective::broadcast, ranks, bytes, DType::u8);
            return predicted(probe, asked.shape, truth);
        };
        times.few_rounds = took(LinkProbe::few_rounds, ProbeTimes::kSmallBytes);
        times.many_rounds = took(LinkProbe::many_rounds, ProbeTimes::kSmallBytes);
        times.fan = took(LinkProbe::fan, ProbeTimes::kSmallBytes);
        for (int i = 1; i < LinkCosts::kPoints; ++i)
            times.by_size[size_t(i)] = took(ProbeTimes::probe_of(i), LinkCosts::kPointBytes[size_t(i)]);
        const LinkCosts found = fit_costs(times, ranks);
        CHECK(found.call_ns == doctest::Approx(truth.call_ns).epsilon(0.01));
        CHECK(found.frame_ns == doctest::Approx(truth.frame_ns).epsilon(0.1));
        CHECK(found.latency_ns == doctest::Approx(truth.latency_ns).epsilon(0.02));
        for (int i = 1; i < LinkCosts::kPoints; ++i) {
            CAPTURE(i);
            CHECK(found.port_ns[size_t(i)] == doctest::Approx(truth.port_ns[size_t(i)]).epsilon(0.02));
        }
    }
}

TEST_CASE("program cost: a size that was not measured is taken to go on in a straight line") {
    ProbeTimes times;
    times.few_rounds = 100000;
    times.many_rounds = 460000;
    times.fan = 60000;
    times.by_size = {0, 500000, 200000, 1000000, 4000000, -1};
    LinkCosts c = fit_costs(times, 4);
    CHECK(c.port_ns[5] == doctest::Approx(4 * c.port_ns[4]));
}
