// A failure belongs to the operation that it happened in: ranks that are still in the one before end it as the others did.
// Ranks as threads over tcp on loopback.
#include <doctest/doctest.h>

#include "engine/rank_threads.h"

using namespace collectives;
using collectives::testing::RankOptions;
using collectives::testing::run_ranks;

namespace {

Status all_reduce(Communicator& communicator, int64_t* value, int64_t count) {
    Call call;
    call.kind = Collective::all_reduce;
    call.dtype = DType::i64;
    call.op = ReduceOp::sum;
    call.in = call.out = Blocks{value, nullptr, nullptr, count};
    return communicator.run(call);
}

} // namespace

TEST_CASE("tcp: what failed in the next operation is no failure of the one that others are still in") {
    constexpr int kRanks = 8, kRounds = 40;
    RankOptions options;
    options.transport = "tcp";
    options.link_profiles = "assume";
    options.algorithm = "all_reduce_doubling"; // in which ranks end at different times
    int unended = 0;
    for (int round = 0; round < kRounds; ++round) {
        std::vector<Status> first(kRanks), second(kRanks);
        std::vector<int64_t> sums(kRanks, 0);
        run_ranks(
            kRanks,
            [&](int r, Communicator& communicator, Node&) {
                int64_t values[2] = {r, 1};
                first[size_t(r)] = all_reduce(communicator, values, 1);
                sums[size_t(r)] = values[0];
                second[size_t(r)] = all_reduce(communicator, values, r == 1 ? 2 : 1);
            },
            options);
        for (int r = 0; r < kRanks; ++r) {
            unended += !first[size_t(r)].ok();
            CHECK_MESSAGE(first[size_t(r)].ok(), "round " << round << ": " << first[size_t(r)].message());
            CHECK((!first[size_t(r)].ok() || sums[size_t(r)] == kRanks * (kRanks - 1) / 2));
            CHECK_MESSAGE(second[size_t(r)].code() == Code::mismatch, second[size_t(r)].message());
        }
    }
    MESSAGE(unended << " of " << kRanks * kRounds << " calls ended by a later failure");
}
