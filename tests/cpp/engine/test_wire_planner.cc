// The choice between hosts: what is predicted to be the fastest, the same whoever asked what before; and profiles as text.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include <doctest/doctest.h>
#include <unistd.h>

#include "engine/wire_planner.h"

using namespace collectives;

namespace {

struct Asked {
    Call call;
    Shape shape;
    Asked(Collective kind, int ranks, int64_t bytes, DType dtype = DType::f32) {
        call.kind = kind;
        call.dtype = dtype;
        shape.call = &call;
        shape.world_size = ranks;
        shape.element_bytes = int64_t(size_of(dtype));
        shape.count = call.in.count = call.out.count = bytes / shape.element_bytes;
        shape.piece_bytes = 512 << 10;
    }
    Asked(const Asked&) = delete;
};

LevelProfile profile_of(double latency_ns, double frame_ns, double byte_ns) {
    LevelProfile level;
    level.costs.latency_ns = latency_ns;
    level.costs.frame_ns = frame_ns;
    for (int i = 0; i < LinkCosts::kPoints; ++i)
        level.costs.port_ns[size_t(i)] = byte_ns * double(LinkCosts::kPointBytes[size_t(i)]);
    return level;
}

std::string chosen(WirePlanner& planner, const Asked& asked, bool rank_order = false) {
    return planner.choose(asked.shape, rank_order, nullptr)->name;
}

} // namespace

TEST_CASE("wire planner: the best by prediction, of those that apply, at every size") {
    for (int ranks : {2, 3, 4, 8})
        for (double frame_ns : {500.0, 20000.0}) {
            WirePlanner planner;
            planner.set_profile(profile_of(30000, frame_ns, 8));
            for (int64_t bytes = 4; bytes <= 64 << 20; bytes *= 2)
                for (Collective kind : {Collective::all_reduce, Collective::reduce, Collective::broadcast}) {
                    Asked asked(kind, ranks, bytes);
                    const WireAlgorithm* row = planner.choose(asked.shape, false, nullptr);
                    REQUIRE(row != nullptr);
                    CHECK(row->kind == kind);
                    CHECK(row->applies(asked.shape));
                    for (const WireCandidate& other : planner.candidates(asked.shape))
                        if (other.row->applies(asked.shape))
                            CHECK(planner.predict(*row, asked.shape).ns <=
                                  1.1 * planner.predict(*other.row, asked.shape).ns);
                }
        }
}

TEST_CASE("wire planner: work for each frame favours few frames, and a slow link few bytes") {
    WirePlanner busy, slow;
    busy.set_profile(profile_of(1000, 50000, 0.1));
    slow.set_profile(profile_of(100000, 100, 80));
    Asked small(Collective::all_reduce, 8, 64), large(Collective::all_reduce, 8, 16 << 20);
    CHECK(chosen(busy, small) == "all_reduce_doubling"); // 3 frames instead of 7
    CHECK(chosen(slow, small) == "all_reduce_exchange"); // 1 round instead of 3
    CHECK(chosen(slow, large) != "all_reduce_doubling");
    CHECK(chosen(slow, large) != "all_reduce_exchange");
}

TEST_CASE("wire planner: of equal predictions the one with the fewest peers") {
    WirePlanner slow; // the link decides, and all three send the same bytes
    slow.set_profile(profile_of(30000, 1000, 8));
    for (int ranks : {3, 4, 8}) {
        Asked large(Collective::all_reduce, ranks, 64 << 20);
        CHECK(chosen(slow, large) == "all_reduce_ring");
        double least = 1e99, ring = 0;
        for (const WireCandidate& each : slow.candidates(large.shape)) {
            least = std::min(least, each.ns);
            if (std::string(each.row->name) == "all_reduce_ring") {
                ring = each.ns;
                CHECK(each.peers == 1);
            }
        }
        CHECK(ring <= WirePlanner::kTie * least);
    }
    Asked ordered(Collective::all_reduce, 4, 64 << 20);
    CHECK(chosen(slow, ordered, true) == "all_reduce_direct"); // not the ring, which sums in another order
}

TEST_CASE("wire planner: tiny blocks for many ranks go in few frames, large ones straight") {
    WirePlanner busy;
    busy.set_profile(profile_of(10000, 5000, 1));
    for (int ranks : {16, 33, 128}) {
        Asked tiny(Collective::all_to_all, ranks, 8), large(Collective::all_to_all, ranks, 1 << 20);
        CHECK(chosen(busy, tiny) == "all_to_all_bruck");
        CHECK(chosen(busy, large) == "all_to_all_pairwise");
    }
    WirePlanner far;
    far.set_profile(profile_of(1000000, 100, 1));
    Asked tiny(Collective::all_to_all, 16, 8);
    CHECK(chosen(far, tiny) == "all_to_all_pairwise"); // 1 round instead of 4
}

TEST_CASE("wire planner: who gives splits, or has three ranks, or large blocks, cannot take rounds of all ranks") {
    const WireAlgorithm* bruck = find_wire_algorithm("all_to_all_bruck");
    REQUIRE(bruck != nullptr);
    const int64_t counts[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    Asked in(Collective::all_to_all, 16, 4), out(Collective::all_to_all, 16, 4), neither(Collective::all_to_all, 16, 4);
    in.call.in.counts = counts;
    out.call.out.counts = counts;
    CHECK_FALSE(bruck->applies(in.shape));
    CHECK_FALSE(bruck->applies(out.shape));
    CHECK(bruck->applies(neither.shape));
    CHECK_FALSE(bruck->applies(Asked(Collective::all_to_all, 3, 4).shape));
    CHECK_FALSE(bruck->applies(Asked(Collective::all_to_all, 16, 0).shape));
    CHECK_FALSE(bruck->applies(Asked(Collective::all_to_all, 16, 64 << 10).shape));
}

TEST_CASE("wire planner: where the order of summation is asked for, only what keeps it") {
    WirePlanner planner;
    planner.set_profile(profile_of(1000, 50000, 0.1));
    for (int64_t bytes = 4; bytes <= 64 << 20; bytes *= 4) {
        Asked asked(Collective::all_reduce, 8, bytes);
        CHECK(planner.choose(asked.shape, true, nullptr)->rank_order);
    }
    Asked half(Collective::all_reduce, 8, 64, DType::f16); // whose partial sums would be rounded
    CHECK(planner.choose(half.shape, false, nullptr)->rank_order);
}

TEST_CASE("wire planner: what was asked before makes no difference") {
    WirePlanner up, down;
    up.set_profile(profile_of(30000, 3000, 8));
    down.set_profile(profile_of(30000, 3000, 8));
    std::vector<std::string> one, other;
    for (int64_t count = 1; count < 300000; count += count / 7 + 1)
        one.push_back(chosen(up, Asked(Collective::all_reduce, 5, 4 * count)));
    std::vector<int64_t> counts;
    for (int64_t count = 1; count < 300000; count += count / 7 + 1) counts.push_back(count);
    for (size_t i = counts.size(); i-- > 0;)
        other.push_back(chosen(down, Asked(Collective::all_reduce, 5, 4 * counts[i])));
    CHECK(one == std::vector<std::string>(other.rbegin(), other.rend()));
}

TEST_CASE("wire planner: a correction can turn the choice") {
    Asked asked(Collective::all_reduce, 4, 64);
    LevelProfile level = profile_of(30000, 3000, 8);
    WirePlanner planner;
    planner.set_profile(level);
    const std::string before = chosen(planner, asked);
    level.corrections[before].set(8, 5.0);
    planner.set_profile(level);
    CHECK(chosen(planner, asked) != before);
}

TEST_CASE("wire planner: a forced algorithm is taken where it applies, and only there") {
    WirePlanner planner;
    const WireAlgorithm* ring = find_wire_algorithm("all_reduce_ring");
    Asked three(Collective::all_reduce, 3, 64), two(Collective::all_reduce, 2, 64), other(Collective::reduce, 3, 64);
    CHECK(planner.choose(three.shape, false, ring) == ring);
    CHECK(planner.choose(two.shape, false, ring) != ring);
    CHECK(planner.choose(other.shape, false, ring)->kind == Collective::reduce);
}

TEST_CASE("link profile: corrections are interpolated by the logarithm of the size") {
    Correction c;
    CHECK(c.at(1000) == 1);
    c.set(64, 2.0);
    c.set(4096, 8.0);
    CHECK(c.at(1) == doctest::Approx(2));
    CHECK(c.at(64) == doctest::Approx(2));
    CHECK(c.at(512) == doctest::Approx(4));
    CHECK(c.at(1 << 30) == doctest::Approx(8));
}

TEST_CASE("link profile: text and back, and what is not understood is refused") {
    LinkProfile profile, read;
    profile.origin = "tuned";
    profile.flat = profile_of(12345, 678, 9);
    profile.lanes = profile_of(54321, 876, 3);
    profile.flat.corrections["all_reduce_ring"].set(512, 1.25);
    profile.lanes.corrections["all_reduce_direct"].set(8, 0.5);
    REQUIRE(LinkProfile::parse(profile.text(), &read).ok());
    CHECK(read.text() == profile.text());
    CHECK(read.origin == "tuned");
    CHECK(read.flat.costs.latency_ns == 12345);
    CHECK(read.lanes.corrections["all_reduce_direct"].at(8) == 0.5);
    for (const char* wrong :
         {"", "collectives-links 2\n", "garbage", "collectives-links 1\nflat costs 1 2 3\n",
          "collectives-links 1\nflat costs 1 -2 3 4 5 6 7 8 9 10 11\n", "collectives-links 1\nflat factor a 8 nan\n",
          "collectives-links 1\nflat factor a 8 0\n", "collectives-links 1\nsideways costs 1\n"}) {
        CAPTURE(wrong);
        Status status = LinkProfile::parse(wrong, &read);
        CHECK(status.code() == Code::invalid_argument);
    }
}

TEST_CASE("link profile: kept in a file of its own for each host, interface and shape") {
    CHECK(profile_path("", "a", "eth0", {1, 1}) == "");
    CHECK(profile_path("/x", "node/1", "eth0", {2, 2, 2}) == "/x/node_1-eth0-3x2.links");
    CHECK(profile_path("/x", "n", "eth0", {2, 1}) == "/x/n-eth0-2_1.links");
    std::string folder = "/tmp/collectives-links-" + std::to_string(getpid());
    std::string path = profile_path(folder + "/deeper", "n", "eth0", {1, 1});
    CHECK(read_profile(path) == "");
    REQUIRE(write_profile(path, "one").ok());
    REQUIRE(write_profile(path, "two").ok());
    CHECK(read_profile(path) == "two");
    CHECK_FALSE(write_profile("/proc/nowhere/x.links", "three").ok());
    std::remove(path.c_str());
    rmdir((folder + "/deeper").c_str());
    rmdir(folder.c_str());
}
