// The messenger at work: matching, order, large messages, doorbells. Most cases drive all ranks from one thread, so that
// each state is reached for certain; the last ones are threads against each other. How it fails: test_messenger_failure.cc.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "engine/messenger_world.h"

using namespace collectives;
using namespace collectives::testing;

TEST_CASE("messages of every size come through, expected or not") {
    for (int64_t ring : {kRingMinBytes, kRing, int64_t(128 * 1024)}) {
        MessengerWorld world(2, ring);
        for (bool expected : {true, false}) {
            for (int64_t bytes : {0, 1, 31, 32, 33, 64, 191, 192, 193, 960, 961, 4096, 4097, 65536, 300001}) {
                CAPTURE(ring);
                CAPTURE(bytes);
                const auto data = pattern(bytes, unsigned(bytes));
                std::vector<unsigned char> got(size_t(bytes), 0);
                Done sent, received;
                if (expected)
                    world[1].post_recv(kGroup, 0, 9, got.data(), bytes, &received);
                world[0].post_send(kGroup, 1, 9, data.data(), bytes, &sent);
                CHECK(sent.ended() == (bytes <= std::min<int64_t>(4096, (ring - 128) / 4 / 64 * 64)));
                world.settle();
                if (!expected)
                    world[1].post_recv(kGroup, 0, 9, got.data(), bytes, &received);
                world.settle();
                REQUIRE(sent.calls == 1);
                REQUIRE(received.calls == 1);
                CHECK(sent.status.ok());
                CHECK(received.status.ok());
                CHECK(received.source == 0);
                CHECK(got == data);
            }
        }
        CHECK_FALSE(world[0].anything_pending());
        CHECK_FALSE(world[1].anything_pending());
    }
}

TEST_CASE("order holds per tag, and nothing waits for another tag") {
    MessengerWorld world(2, kRing);
    std::vector<int> values(40);
    std::iota(values.begin(), values.end(), 0);
    std::vector<Done> sent(40), received(40);
    std::vector<int> got(40, -1);
    for (int i = 0; i < 40; ++i) // tags 0 and 1 in turn
        world[0].post_send(kGroup, 1, uint32_t(i % 2), &values[size_t(i)], 4, &sent[size_t(i)]);
    world.settle();
    for (int i = 0; i < 20; ++i) // tag 1 first
        world[1].post_recv(kGroup, 0, 1, &got[size_t(i)], 4, &received[size_t(i)]);
    for (int i = 20; i < 40; ++i) world[1].post_recv(kGroup, 0, 0, &got[size_t(i)], 4, &received[size_t(i)]);
    world.settle();
    for (int i = 0; i < 20; ++i) {
        CHECK(got[size_t(i)] == 2 * i + 1);
        CHECK(got[size_t(i + 20)] == 2 * i);
    }
}

TEST_CASE("a small message overtakes a large one, and a receive holds up no send") {
    MessengerWorld world(2, kRing);
    const auto large = pattern(kLarge, 1);
    std::vector<unsigned char> large_got(large.size());
    int small = 5, small_got = 0, never = 0;
    Done large_sent, large_received, small_sent, small_received, waiting;
    world[0].post_recv(kGroup, 1, 3, &never, 4, &waiting); // no such message yet
    world[0].post_send(kGroup, 1, 1, large.data(), kLarge, &large_sent);
    world[1].post_recv(kGroup, 0, 1, large_got.data(), kLarge, &large_received);
    world[1].progress(); // clear to send
    world[0].progress(); // the ring is full of fragments
    CHECK_FALSE(large_sent.ended());
    world[0].post_send(kGroup, 1, 2, &small, 4, &small_sent);
    CHECK(small_sent.ended()); // fragments leave room
    world[1].post_recv(kGroup, 0, 2, &small_got, 4, &small_received);
    world[1].progress();
    CHECK(small_received.ended());
    CHECK_FALSE(large_received.ended());
    world.settle();
    CHECK(small_got == 5);
    CHECK(large_received.ended());
    CHECK(large_got == large);
    CHECK_FALSE(waiting.ended());
    world[1].post_send(kGroup, 0, 3, &small, 4, nullptr); // a null completion is allowed
    world.settle();
    CHECK(waiting.ended());
}

TEST_CASE("several large messages share the ring") {
    MessengerWorld world(2, kRing);
    std::vector<std::vector<unsigned char>> data, got;
    std::vector<Done> sent(4), received(4);
    for (int i = 0; i < 4; ++i) {
        data.push_back(pattern(kLarge, unsigned(i)));
        got.emplace_back(size_t(kLarge));
    }
    for (int i = 0; i < 4; ++i) {
        const int64_t bytes = i == 3 ? 5000 : kLarge;
        world[0].post_send(kGroup, 1, uint32_t(i), data[size_t(i)].data(), bytes, &sent[size_t(i)]);
        world[1].post_recv(kGroup, 0, uint32_t(i), got[size_t(i)].data(), bytes, &received[size_t(i)]);
    }
    for (int i = 0; i < 40; ++i) {
        world[1].progress();
        world[0].progress();
    }
    CHECK(received[3].ended()); // a short one is not kept by the long ones
    CHECK_FALSE(received[0].ended());
    world.settle();
    for (size_t i = 0; i < 3; ++i) {
        CHECK(received[i].status.ok());
        CHECK(received[i].ended());
        CHECK(got[i] == data[i]);
    }
}

TEST_CASE("a receive from any source takes the earliest, and says whose") {
    MessengerWorld world(4, kRing);
    int values[4] = {100, 101, 102, 103};
    for (int rank : {2, 1, 3}) { // this order of arrival at rank 0
        world[rank].post_send(kGroup, 0, 5, &values[rank], 4, nullptr);
        world[0].progress();
    }
    world[1].post_send(kGroup, 0, 6, &values[0], 4, nullptr); // another tag
    world.settle();
    std::vector<int> got(3);
    std::vector<Done> done(3);
    for (size_t i = 0; i < 3; ++i) world[0].post_recv(kGroup, Messenger::kAnyRank, 5, &got[i], 4, &done[i]);
    CHECK(got == std::vector<int>{102, 101, 103});
    CHECK(done[0].source == 2);
    CHECK(done[1].source == 1);
    CHECK(done[2].source == 3);

    // Posted before: named and any-source receives take in order of posting; large ones too.
    const auto large = pattern(kLarge, 4);
    std::vector<unsigned char> large_got(large.size());
    Done any, named, any_large;
    int first = 0, second = 0;
    world[0].post_recv(kGroup, Messenger::kAnyRank, 7, &first, 4, &any);
    world[0].post_recv(kGroup, 3, 7, &second, 4, &named);
    world[0].post_recv(kGroup, Messenger::kAnyRank, 8, large_got.data(), kLarge, &any_large);
    world[3].post_send(kGroup, 0, 7, &values[1], 4, nullptr);
    world[3].post_send(kGroup, 0, 7, &values[2], 4, nullptr);
    world[2].post_send(kGroup, 0, 8, large.data(), kLarge, nullptr);
    world.settle();
    CHECK(first == 101);
    CHECK(second == 102);
    CHECK(any.source == 3);
    CHECK(any_large.ended());
    CHECK(any_large.source == 2);
    CHECK(large_got == large);
    CHECK(world[0].anything_pending() == false);
}

TEST_CASE("a process sends to itself") {
    MessengerWorld world(1, kRing);
    for (bool expected : {true, false}) {
        for (bool any : {true, false}) {
            for (int64_t bytes : {int64_t(0), int64_t(8), int64_t(4096), int64_t(5000), int64_t(3) << 20}) {
                CAPTURE(bytes);
                const auto data = pattern(bytes, 3);
                std::vector<unsigned char> got(size_t(bytes), 0);
                Done sent, received;
                if (expected)
                    world[0].post_recv(kGroup, any ? -1 : 0, 1, got.data(), bytes, &received);
                world[0].post_send(kGroup, 0, 1, data.data(), bytes, &sent);
                if (!expected)
                    world[0].post_recv(kGroup, any ? -1 : 0, 1, got.data(), bytes, &received);
                world.settle();
                REQUIRE(sent.calls == 1);
                REQUIRE(received.calls == 1);
                CHECK(received.status.ok());
                CHECK(received.source == 0);
                CHECK(got == data);
            }
        }
    }
    Done sent, received;
    const auto data = pattern(5000, 3);
    std::vector<unsigned char> got(4000);
    world[0].post_send(kGroup, 0, 1, data.data(), 5000, &sent);
    world[0].post_recv(kGroup, 0, 1, got.data(), 4000, &received);
    CHECK(sent.status.code() == Code::mismatch);
    CHECK(received.status.code() == Code::mismatch);
    Done waiting, half_sent, half_received;
    std::vector<unsigned char> big(1 << 20), big_got(1 << 20);
    world[0].post_send(kGroup, 0, 2, data.data(), 5000, &waiting);
    world[0].post_send(kGroup, 0, 3, big.data(), 1 << 20, &half_sent);
    world[0].post_recv(kGroup, 0, 3, big_got.data(), 1 << 20, &half_received);
    world[0].progress();
    world[0].fail_communicator(kGroup, kAborted);
    CHECK(waiting.status.code() == Code::aborted);
    CHECK(half_sent.status.code() == Code::aborted);
    CHECK(half_received.status.code() == Code::aborted);
    CHECK_FALSE(world[0].anything_pending());
}

TEST_CASE("messages of a communicator that is not open here yet are kept") {
    MessengerWorld world(2, kRing);
    const auto large = pattern(kLarge, 1);
    std::vector<unsigned char> large_got(large.size());
    int value = 8, got = 0;
    Done small, big, sent;
    world.open_at(0, 50, "later");
    world[0].post_send(50, 1, 1, &value, 4, nullptr);
    world[0].post_send(50, 1, 2, large.data(), kLarge, &sent);
    world.settle();
    world.open_at(1, 50, "later");
    world[1].post_recv(50, Messenger::kAnyRank, 1, &got, 4, &small);
    world[1].post_recv(50, 0, 2, large_got.data(), kLarge, &big);
    world.settle();
    CHECK(got == 8);
    CHECK(big.ended());
    CHECK(sent.status.ok());
    CHECK(large_got == large);
}

TEST_CASE("a communicator without slots learns them, or is told") {
    MessengerWorld world(2, kRing);
    REQUIRE(world[0].add_communicator({60, "lazy", 0, {-1, -1}, {7, 9}}).ok());
    REQUIRE(world[1].add_communicator({60, "lazy", 1, {-1, -1}, {7, 9}}).ok());
    int value = 8, got = 0;
    Done refused, received, back;
    world[0].post_send(60, 1, 1, &value, 4, &refused);
    CHECK(refused.status.code() == Code::internal);
    CHECK(has(refused.status, "rank 1 (global rank 9)"));
    world[0].set_slot(60, 1, world.slot(0, 1));
    world[0].post_send(60, 1, 1, &value, 4, nullptr);
    world[1].post_recv(60, Messenger::kAnyRank, 1, &got, 4, &received);
    world.settle();
    CHECK(got == 8);
    world[1].post_send(60, 0, 1, &value, 4, nullptr); // the message told rank 1 where rank 0 is
    world[0].post_recv(60, 1, 1, &got, 4, &back);
    world.settle();
    CHECK(back.ended());
}

TEST_CASE("the doorbell rings for messages and for room") {
    MessengerWorld world(2, kRing);
    int value = 1, got = 0;
    Done done;
    world[0].post_send(kGroup, 1, 1, &value, 4, nullptr);
    CHECK(world.wakes[1] == 1);
    CHECK(world.wakes[0] == 0);
    world[1].post_recv(kGroup, 0, 1, &got, 4, &done);
    world[1].progress();
    CHECK(world.wakes[0] == 0); // nobody waits for room
    std::vector<Done> sent(80); // more than the ring holds, by less than a pass ends
    for (Done& one : sent) world[0].post_send(kGroup, 1, 2, &value, 4, &one);
    world[0].progress(); // asks for room
    world[1].progress();
    CHECK(world.wakes[0] > 0);
    const int before = world.wakes[1];
    world[0].progress();
    CHECK(sent.back().ended());
    CHECK(world.wakes[1] == before + 1); // one ring a pass, not one a record
}

TEST_CASE("a completion may post again") {
    MessengerWorld world(2, kRing);
    struct Chain final : Completion {
        MessengerWorld* world;
        int value = 0, left = 1000;
        void message_done(const Status& status, int) override {
            if (status.ok() && --left > 0)
                (*world)[1].post_recv(kGroup, 0, 1, &value, 4, this);
        }
    } chain;
    chain.world = &world;
    world[1].post_recv(kGroup, 0, 1, &chain.value, 4, &chain);
    for (int i = 1; i <= 1000; ++i) {
        world[0].post_send(kGroup, 1, 1, &i, 4, nullptr);
        world.settle();
    }
    CHECK(chain.left == 0);
    CHECK(chain.value == 1000);
}

TEST_CASE("threads: large messages both ways at once, smallest ring") {
    constexpr int64_t kBytes = 3 << 20;
    MessengerWorld world(2, kRingMinBytes);
    std::vector<std::vector<unsigned char>> data{pattern(kBytes, 0), pattern(kBytes, 1)}, got(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            got[size_t(rank)].resize(size_t(kBytes));
            Done sent, received;
            world[rank].post_send(kGroup, 1 - rank, 1, data[size_t(rank)].data(), kBytes, &sent);
            if (rank == 0)
                world[rank].progress();
            world[rank].post_recv(kGroup, 1 - rank, 1, got[size_t(rank)].data(), kBytes, &received);
            world.wait(rank, sent);
            world.wait(rank, received);
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(got[0] == data[1]);
    CHECK(got[1] == data[0]);
}

TEST_CASE("threads: 10,000 messages in random order among four ranks") {
    constexpr int kRanks = 4, kMessages = 10000;
    struct Message {
        int from, to;
        uint32_t tag;
        int64_t bytes;
        unsigned seed;
    };
    std::mt19937 random(20240607);
    std::vector<Message> messages;
    const int64_t sizes[] = {0, 8, 8, 32, 100, 900, 1000, 4000, 5000, 40000};
    for (int i = 0; i < kMessages; ++i)
        messages.push_back({int(random() % kRanks), int(random() % kRanks), uint32_t(random() % 8),
                            sizes[random() % 10] + int64_t(random() % 3), unsigned(i)});
    // Sizes must agree per channel in order, so the receives of a channel are in the sends' order; the channels mix.
    MessengerWorld world(kRanks, kRing);
    std::atomic<int> wrong{0};
    std::atomic<int> at_work{kRanks};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
            struct Operation {
                const Message* message;
                bool sends;
                std::vector<unsigned char> data;
                Done done;
            };
            std::vector<std::vector<const Message*>> channels(2 * kRanks * 8);
            size_t left = 0;
            for (const Message& m : messages) {
                if (m.from == rank)
                    channels[size_t(m.to) * 8 + m.tag].push_back(&m), ++left;
                if (m.to == rank)
                    channels[size_t(kRanks + m.from) * 8 + m.tag].push_back(&m), ++left;
            }
            std::vector<size_t> next(channels.size());
            std::deque<Operation> live;
            std::minstd_rand order(unsigned(rank) + 1);
            while (left > 0) {
                const size_t c = order() % channels.size();
                if (next[c] == channels[c].size())
                    continue;
                const Message* m = channels[c][next[c]++];
                --left;
                Operation& op = live.emplace_back();
                op.message = m;
                op.sends = c < size_t(kRanks) * 8;
                if (op.sends) {
                    op.data = pattern(m->bytes, m->seed);
                    world[rank].post_send(kGroup, m->to, m->tag, op.data.data(), m->bytes, &op.done);
                } else {
                    op.data.resize(size_t(m->bytes));
                    world[rank].post_recv(kGroup, m->from, m->tag, op.data.data(), m->bytes, &op.done);
                }
                if (order() % 3 == 0)
                    world[rank].progress();
            }
            for (Operation& op : live) {
                world.wait(rank, op.done);
                wrong += !op.done.status.ok() || op.done.calls != 1;
                if (!op.sends)
                    wrong +=
                        op.data != pattern(op.message->bytes, op.message->seed) || op.done.source != op.message->from;
            }
            --at_work;
            while (at_work > 0) { // the others may still need this one's acknowledgements
                world[rank].progress();
                std::this_thread::yield();
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
    for (int rank = 0; rank < kRanks; ++rank) CHECK_FALSE(world[rank].anything_pending());
}

TEST_CASE("threads: several on one messenger, with communicators coming and going") {
    constexpr int kThreads = 3;
    MessengerWorld world(2, kRing);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int rank = 0; rank < 2; ++rank) {
        for (int t = 0; t < kThreads; ++t) {
            threads.emplace_back([&, rank, t] {
                for (int i = 0; i < 60; ++i) {
                    const uint64_t id = uint64_t(1000 + t * 100 + i);
                    world.open_at(rank, id, "g");
                    const int64_t bytes = i % 3 == 0 ? 20000 : 8;
                    const auto data = pattern(bytes, unsigned(i + rank));
                    std::vector<unsigned char> got(size_t(bytes), 0);
                    Done sent, received;
                    world[rank].post_send(id, 1 - rank, 1, data.data(), bytes, &sent);
                    world[rank].post_recv(id, i % 2 ? 1 - rank : -1, 1, got.data(), bytes, &received);
                    world.wait(rank, sent);
                    world.wait(rank, received);
                    wrong +=
                        !sent.status.ok() || !received.status.ok() || got != pattern(bytes, unsigned(i + 1 - rank));
                    world[rank].forget_communicator(id);
                }
            });
        }
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
}

TEST_CASE("threads: a communicator fails in the middle of everything") {
    for (int round = 0; round < 20; ++round) {
        MessengerWorld world(2, kRing);
        std::atomic<int> ended{0};
        std::vector<std::thread> threads;
        for (int rank = 0; rank < 2; ++rank) {
            threads.emplace_back([&, rank] {
                std::vector<std::vector<unsigned char>> data(20), got(20);
                std::vector<Done> done(40);
                for (size_t i = 0; i < 20; ++i) {
                    data[i].resize(i % 2 ? 20000 : 8);
                    got[i].resize(data[i].size());
                    world[rank].post_send(kGroup, 1 - rank, uint32_t(i), data[i].data(), int64_t(data[i].size()),
                                          &done[2 * i]);
                    world[rank].post_recv(kGroup, 1 - rank, uint32_t(i), got[i].data(), int64_t(got[i].size()),
                                          &done[2 * i + 1]);
                }
                for (int i = 0; i < round * 3; ++i) world[rank].progress();
                if (rank == 0)
                    world[0].fail_communicator(kGroup, kAborted);
                else
                    world[1].fail_peer(world.slot(1, 0), kGone);
                for (Done& one : done) ended += one.calls == 1;
            });
        }
        for (auto& thread : threads) thread.join();
        CHECK(ended == 80);
    }
}
