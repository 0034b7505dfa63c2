// Two levels: which rank carries what between hosts, for any layout; that the choice between one level and two is alike on all
// ranks; and what ranks are told whose calls do not go the same way. The results themselves: test_contract.cc.
#include <doctest/doctest.h>

#include <set>

#include "engine/host_layout.h"
#include "engine/rank_threads.h"

using namespace collectives;
using collectives::testing::RankOptions;
using collectives::testing::run_ranks;

namespace {

const std::vector<std::vector<int>> kLayouts = {
    {0, 1, 1},
    {0, 0, 0, 1},
    {0, 0, 1, 1},
    {0, 1, 0, 1},
    {0, 1, 2, 2},
    {0, 1, 1, 2, 1, 0},
    {0, 0, 0, 0, 0, 1, 1, 1, 2, 2},
};

/// Of ranks on islands, one all_to_all of `count` elements, or of rank `odd` what `otherwise` makes of it.
std::vector<Status> told(const std::vector<std::string>& islands, int odd,
                         const std::function<void(Call*, std::vector<int64_t>*)>& otherwise) {
    RankOptions options;
    options.islands = islands;
    options.algorithm = "two_levels";
    const int n = int(islands.size());
    std::vector<Status> statuses(islands.size());
    run_ranks(
        n,
        [&](int r, Communicator& communicator, Node&) {
            constexpr int64_t kRoom = 1 << 18;
            std::vector<int32_t> in(size_t(kRoom * n), r), out(in.size());
            std::vector<int64_t> counts(islands.size());
            for (int i = 0; i < 3; ++i) { // some that agree come first, of either level
                Call call;
                call.kind = i == 1 ? Collective::gather : Collective::all_to_all;
                call.dtype = DType::i32;
                call.in = Blocks{in.data(), nullptr, nullptr, 6};
                call.out = Blocks{out.data(), nullptr, nullptr, 6};
                if (i == 2 && r == odd)
                    otherwise(&call, &counts);
                statuses[size_t(r)] = communicator.run(call);
            }
        },
        options);
    return statuses;
}

void check_told(int odd, const std::function<void(Call*, std::vector<int64_t>*)>& otherwise, const std::string& words) {
    const int64_t began = monotonic_ns();
    for (const Status& status : told({"a", "a", "b", "b"}, odd, otherwise)) {
        CHECK_MESSAGE(status.code() == Code::mismatch, status.message());
        CHECK_MESSAGE(status.message().find(words) != std::string::npos, status.message());
        CHECK_MESSAGE(status.message().find("rank " + std::to_string(odd) + " (") != std::string::npos,
                      status.message());
    }
    CHECK(monotonic_ns() - began < 10 * kSecond); // the deadline is 20 s
}

} // namespace

TEST_CASE("host layout: every lane has one driver on each host, and every rank drives one at least") {
    for (const auto& host_of : kLayouts) {
        const HostLayout layout = HostLayout::of_hosts(host_of);
        CHECK(layout.layered());
        for (int h = 0; h < layout.hosts(); ++h) {
            int next = 0;
            for (int place = 0; place < layout.size(h); ++place) {
                CHECK(layout.first_lane(h, place) == next);
                CHECK(layout.n_lanes(h, place) >= 1);
                CHECK(layout.n_lanes(h, place) <= layout.most_lanes_of_a_rank());
                for (int lane = next; lane < next + layout.n_lanes(h, place); ++lane)
                    CHECK(layout.driver(h, lane) == place);
                next += layout.n_lanes(h, place);
            }
            CHECK(next == layout.lanes);
        }
    }
}

TEST_CASE("host layout: the lanes carry all of a vector, and all of a block, once") {
    for (const auto& host_of : kLayouts) {
        const HostLayout layout = HostLayout::of_hosts(host_of);
        for (int64_t count : {0, 1, 17, 1000, 16384, 40009, 1000003}) {
            int64_t next = 0;
            std::set<int> busy;
            for (int lane = 0; lane < layout.lanes; ++lane) {
                const Share share = layout.of_vector(count, lane, 4);
                CHECK((share.count == 0 || share.begin == next));
                next += share.count;
                for (int h = 0; h < layout.hosts() && share.count > 0 && count < 16384; ++h)
                    CHECK(busy.insert(layout.rank_at(h, lane)).second); // nobody has two of a small one
            }
            CHECK(next == count);
            for (int h = 0; h < layout.hosts(); ++h)
                for (int place = 0; place < layout.size(h); ++place) {
                    int64_t sent = 0;
                    for (int i = 0; i < layout.n_lanes(h, place); ++i) {
                        const Share share = layout.of_block(count, h, layout.first_lane(h, place) + i, 4);
                        CHECK((share.count == 0 || share.begin == sent));
                        sent += share.count;
                    }
                    CHECK(sent == count);
                }
        }
    }
}

TEST_CASE("host layout: every block of an all_to_all goes on one lane of the rank that it is for") {
    for (const auto& host_of : kLayouts) {
        const HostLayout layout = HostLayout::of_hosts(host_of);
        for (int from = 0; from < layout.hosts(); ++from) {
            std::set<std::pair<int, int>> seen; // (place of the source, rank that it is for)
            int carried = 0;
            for (int to = 0; to < layout.hosts(); ++to)
                for (int lane = 0; lane < layout.lanes; ++lane) {
                    const Share sources = layout.sources(from, to, lane);
                    for (int64_t p = sources.begin; p < sources.begin + sources.count; ++p)
                        CHECK(seen.insert({int(p), layout.rank_at(to, lane)}).second);
                }
            CHECK(int(seen.size()) == layout.size(from) * layout.world_size());
            for (int place = 0; place < layout.size(from); ++place) carried += layout.carried(from, place);
            CHECK(carried == int(seen.size()));
        }
    }
}

TEST_CASE("two levels: a rank whose call goes on one level is an error on all, soon") {
    for (int odd : {0, 3}) {
        check_told(
            odd,
            [](Call* call, std::vector<int64_t>* counts) {
                counts->assign(counts->size(), 6);
                call->in.counts = call->out.counts = counts->data();
            },
            "where one rank gives splits, all must");
        check_told(
            odd, [](Call* call, std::vector<int64_t>*) { call->in.count = call->out.count = 200'000; },
            "without splits all ranks' blocks must have the same size");
        check_told(odd, [](Call* call, std::vector<int64_t>*) { call->kind = Collective::barrier; }, "barrier");
    }
}

TEST_CASE("two levels: blocks of another size on one rank are an error on all, soon") {
    for (int odd : {0, 3})
        check_told(
            odd, [](Call* call, std::vector<int64_t>*) { call->in.count = call->out.count = 7; }, "the same size");
}
