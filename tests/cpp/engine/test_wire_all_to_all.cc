// What ranks are told that do not agree about the blocks of an all_to_all, where the algorithm wants all to be alike: an
// error that says so, soon, on every rank. Ranks as threads over tcp on loopback.
#include <doctest/doctest.h>

#include <atomic>
#include <numeric>

#include "engine/rank_threads.h"

using namespace collectives;
using collectives::testing::RankOptions;
using collectives::testing::run_ranks;

namespace {

constexpr int kOdd = 2; // the rank that calls otherwise

struct Differing {
    bool splits;   // it gives them, the others do not
    int64_t count; // of its blocks; the others' have 6 elements
    int64_t others = 6;
};

/// One all_to_all with one rank that differs; what each rank was told.
std::vector<Status> told(int n, const Differing& odd) {
    RankOptions options;
    options.transport = "tcp";
    options.algorithm = "all_to_all_bruck";
    std::vector<Status> statuses(static_cast<size_t>(n));
    run_ranks(
        n,
        [&](int r, Communicator& communicator, Node&) {
            const int64_t count = r == kOdd ? odd.count : odd.others;
            std::vector<int64_t> counts(size_t(n), count);
            std::vector<int32_t> in(size_t(n * count), r), out(size_t(n * count));
            Call call;
            call.kind = Collective::all_to_all;
            call.dtype = DType::i32;
            const int64_t* given = r == kOdd && odd.splits ? counts.data() : nullptr;
            call.in = Blocks{in.data(), nullptr, given, count};
            call.out = Blocks{out.data(), nullptr, given, count};
            statuses[size_t(r)] = communicator.run(call);
        },
        options);
    return statuses;
}

void check_told(int n, const Differing& odd, const std::string& words) {
    CAPTURE(n);
    const int64_t began = monotonic_ns();
    std::vector<Status> statuses = told(n, odd);
    CHECK(monotonic_ns() - began < 10 * kSecond); // the deadline is 20 s
    for (const Status& status : statuses) {
        CHECK_MESSAGE(status.code() == Code::mismatch, status.message());
        CHECK_MESSAGE(status.message().find(words) != std::string::npos, status.message());
        CHECK_MESSAGE(status.message().find("rank " + std::to_string(kOdd) + " (") != std::string::npos,
                      status.message());
    }
}

} // namespace

TEST_CASE("all_to_all between hosts: splits on one rank and none on the others is an error on all") {
    for (int n : {4, 5, 8}) {
        check_told(n, {true, 6}, "gives splits");
        check_told(n, {true, 12}, "gives splits"); // as long as what two blocks' frame has
        check_told(n, {true, 0}, "gives splits");
    }
}

TEST_CASE("all_to_all between hosts: blocks of another size on one rank are an error on all") {
    for (int n : {4, 5}) {
        check_told(n, {false, 7}, "the blocks of");
        check_told(n, {false, 0}, "the blocks of"); // it takes another algorithm
    }
}
