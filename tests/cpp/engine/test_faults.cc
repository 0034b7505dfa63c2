// What a group does over the transport `faulty`, one fault at a time; tests/sim mixes them at random.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>

#include "engine/rank_threads.h"
#include "transport/local_node.h"

using namespace collectives;
using collectives::testing::RankOptions;
using collectives::testing::run_ranks;

namespace {

constexpr int64_t kPatience = 5 * kSecond; // where the contract says one, on a machine that does other things too

/// Only rank `victim` dies.
struct World {
    int n, victim;
    int64_t after;
    bool silent = false;
};

/// Runs `body` on the ranks of a world in which one dies by plan.
void run_world(const World& world, int64_t timeout_ns, const std::function<void(int, Communicator&)>& body) {
    auto board = std::make_shared<collectives::testing::Board>();
    std::vector<std::unique_ptr<Node>> nodes;
    for (int r = 0; r < world.n; ++r) {
        RankOptions options;
        options.transport = "faulty";
        if (r == world.victim) {
            options.faults.drop_after_publications = world.after;
            options.faults.silent_death = world.silent;
        }
        nodes.push_back(collectives::testing::make_node(options, r));
    }
    std::vector<std::thread> threads;
    for (int r = 0; r < world.n; ++r)
        threads.emplace_back([&, r] {
            collectives::testing::ThreadBootstrap bootstrap(board, "world", r, world.n);
            CommunicatorConfig config;
            config.rank = r;
            config.world_size = world.n;
            config.timeout_ns = timeout_ns;
            std::shared_ptr<Communicator> communicator;
            if (Status status = Communicator::create(*nodes[size_t(r)], config, bootstrap, &communicator); status.ok())
                body(r, *communicator);
        });
    for (auto& thread : threads) thread.join();
}

/// Calls barriers until one fails (at most 1000); the error.
Status until_error(Communicator& communicator) {
    for (int i = 0; i < 1000; ++i) COLLECTIVES_RETURN_IF_ERROR(communicator.run(Call{}));
    return {};
}

bool names(const Status& status, int rank) {
    return status.message().find("rank " + std::to_string(rank) + " (") != std::string::npos;
}

} // namespace

TEST_CASE("a rank that dies is an error on every survivor, which names it and comes again at once") {
    for (int64_t after : {20, 33}) {
        std::atomic<int> good{0};
        run_world({4, 2, after}, 60 * kSecond, [&](int r, Communicator& communicator) {
            const int64_t began = monotonic_ns();
            Status status = until_error(communicator);
            const int64_t took = monotonic_ns() - began;
            const int64_t again_from = monotonic_ns();
            Status again = communicator.run(Call{});
            if (r == 2)
                return;
            good += status.code() == Code::peer_failed && names(status, 2) && took < kPatience &&
                    again.message() == status.message() && monotonic_ns() - again_from < kSecond;
            CHECK_MESSAGE(names(status, 2), status.message());
        });
        CHECK(good == 3);
    }
}

TEST_CASE("a rank that falls silent is an error at the deadline, which names it") {
    std::atomic<int> named{0};
    run_world({3, 0, 15, true}, kSecond, [&](int r, Communicator& communicator) {
        const int64_t began = monotonic_ns();
        Status status = until_error(communicator);
        const int64_t took = monotonic_ns() - began;
        if (r == 0)
            return;
        CHECK(took > 900 * kMillisecond);
        CHECK(took < kSecond + kPatience);
        CHECK_MESSAGE((status.code() == Code::timeout || status.code() == Code::peer_failed), status.message());
        named += names(status, 0);
    });
    CHECK(named == 2);
}

TEST_CASE("the survivors of a death go on without it") {
    std::atomic<int> right{0};
    run_world({5, 1, 25}, 60 * kSecond, [&](int r, Communicator& communicator) {
        Status status = until_error(communicator);
        if (r == 1)
            return;
        std::shared_ptr<Communicator> rest;
        status = communicator.shrink({1}, "rest", &rest);
        REQUIRE_MESSAGE(status.ok(), status.message());
        int64_t value = r;
        Call call;
        call.kind = Collective::all_reduce;
        call.dtype = DType::i64;
        call.in = call.out = Blocks{&value, nullptr, nullptr, 1};
        status = rest->run(call);
        right += status.ok() && value == 0 + 2 + 3 + 4 && rest->close(kSecond).ok();
        CHECK_MESSAGE(status.ok(), status.message());
    });
    CHECK(right == 4);
}

TEST_CASE("a receive from a rank that dies, and one from anybody, name it") {
    for (int source : {1, kAnySource}) {
        std::atomic<bool> named{false};
        run_world({2, 1, 12}, 60 * kSecond, [&](int r, Communicator& communicator) {
            uint8_t byte = 0;
            if (r == 1) {
                (void)until_error(communicator);
                return;
            }
            auto recv = communicator.start_recv(&byte, 1, source, 3);
            (void)until_error(communicator);
            Status status = recv->wait();
            named = status.code() == Code::peer_failed && names(status, 1);
            CHECK_MESSAGE(named, status.message());
        });
        CHECK(named);
    }
}

TEST_CASE("messages overtake each other, but never one with the same peer and tag") {
    RankOptions options;
    options.transport = "faulty";
    options.faults.reorder_probability = 1;
    options.faults.seed = 4;
    std::atomic<int> overtaken{0};
    run_ranks(
        2,
        [&](int r, Communicator& communicator, Node&) {
            constexpr int kMessages = 200, kTags = 4;
            std::vector<RequestPtr> requests;
            std::vector<int32_t> values(kMessages);
            std::vector<std::atomic<int>> order(kMessages); // when message i ended here
            std::atomic<int> clock{0};
            for (int i = 0; i < kMessages; ++i) {
                values[size_t(i)] = r == 0 ? i : -1;
                requests.push_back(r == 0 ? communicator.start_send(&values[size_t(i)], 4, 1, uint32_t(i % kTags))
                                          : communicator.start_recv(&values[size_t(i)], 4, 0, uint32_t(i % kTags)));
                requests.back()->on_complete([&, i](const Status&) { order[size_t(i)] = ++clock; });
            }
            for (auto& request : requests) CHECK(request->wait().ok());
            for (int i = 0; i < kMessages; ++i) CHECK(values[size_t(i)] == i);
            if (r == 1)
                for (int i = 1; i < kMessages; ++i) overtaken += order[size_t(i)] < order[size_t(i) - 1];
        },
        options);
    CHECK(overtaken > 0);
}
