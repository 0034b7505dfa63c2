// What is sent to a rank that comes late arrives in an order in which it can be placed. Ranks as threads over tcp on loopback.
#include <doctest/doctest.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "engine/rank_threads.h"

using namespace collectives;
using collectives::testing::RankOptions;
using collectives::testing::run_ranks;

namespace {

/// A call whose pieces, but for the last and small one, wait until the late rank has begun. The one at its end must not go
/// ahead: its place is free only when the first piece has been added.
void late_rank(Collective kind, int late) {
    CAPTURE(collective_name(kind));
    CAPTURE(late);
    constexpr int kRanks = 3;
    constexpr int64_t kPieceBytes = 96 << 10,
                      kCount = (5 * kPieceBytes + 640) / 8; // more than may go early; five, and a bit
    const bool blocks = kind == Collective::reduce_scatter;
    RankOptions options;
    options.transport = "tcp";
    options.piece_bytes = kPieceBytes;
    options.algorithm = std::string(collective_name(kind)) + "_direct";
    std::vector<Status> statuses(kRanks);
    std::vector<int> wrong(kRanks, 0);
    run_ranks(
        kRanks,
        [&](int r, Communicator& communicator, Node&) {
            for (int round = 0; round < 3 && statuses[size_t(r)].ok(); ++round) {
                std::vector<int64_t> in(size_t(kCount * kRanks)), out(size_t(kCount * kRanks), -1);
                std::iota(in.begin(), in.end(), r + round);
                Call call;
                call.kind = kind;
                call.dtype = DType::i64;
                call.in = Blocks{in.data(), nullptr, nullptr, blocks ? kCount : kCount * kRanks};
                call.out = Blocks{out.data(), nullptr, nullptr, blocks ? kCount : kCount * kRanks};
                if (r == late)
                    std::this_thread::sleep_for(std::chrono::milliseconds(30)); // the others have sent what they may
                statuses[size_t(r)] = communicator.run(call, 10 * kSecond);
                for (int64_t i = 0; i < call.out.count; ++i)
                    wrong[size_t(r)] += out[size_t(i)] != kRanks * (i + (blocks ? r * kCount : 0) + round) + 3;
            }
        },
        options);
    for (int r = 0; r < kRanks; ++r) {
        CHECK_MESSAGE(statuses[size_t(r)].ok(), statuses[size_t(r)].message());
        CHECK(wrong[size_t(r)] == 0);
    }
}

} // namespace

TEST_CASE("tcp: small pieces do not overtake large ones that wait for a rank to begin") {
    for (Collective kind : {Collective::reduce_scatter, Collective::all_reduce})
        for (int late : {0, 1, 2}) late_rank(kind, late);
}
