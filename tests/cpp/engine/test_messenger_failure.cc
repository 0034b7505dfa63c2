// The messenger's ways to fail: sizes that differ, communicators and peers that end in every state, records that lie.
// All ranks are driven from one thread, so that each state is reached for certain.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/messenger_world.h"

using namespace collectives;
using namespace collectives::testing;

TEST_CASE("sizes that differ fail both sides and leave the ring usable") {
    for (int64_t bytes : {int64_t(16), kLarge}) {
        for (bool expected : {true, false}) {
            CAPTURE(bytes);
            CAPTURE(expected);
            std::vector<Status> late;
            MessengerConfig config;
            config.on_late_error = [&](uint64_t id, const Status& status) {
                CHECK(id == kGroup);
                late.push_back(status);
            };
            MessengerWorld world(2, kRing, config);
            const auto data = pattern(bytes, 1);
            std::vector<unsigned char> got(size_t(bytes) + 8);
            Done sent, received;
            if (expected)
                world[1].post_recv(kGroup, 0, 77, got.data(), bytes + 8, &received);
            world[0].post_send(kGroup, 1, 77, data.data(), bytes, &sent);
            world.settle();
            if (!expected)
                world[1].post_recv(kGroup, 0, 77, got.data(), bytes + 8, &received);
            world.settle();
            REQUIRE(sent.calls == 1);
            REQUIRE(received.calls == 1);
            CHECK(received.status.code() == Code::mismatch);
            const Status at_sender = bytes == kLarge ? sent.status : late.at(0);
            CHECK(at_sender.message() == received.status.message());
            CHECK(at_sender.code() == Code::mismatch);
            for (const std::string part : {"rank 0", "rank 1", "tag 77", "'world'"}) CHECK(has(received.status, part));
            CHECK(has(received.status, std::to_string(bytes) + " bytes"));
            CHECK(has(received.status, std::to_string(bytes + 8) + " bytes"));
            CHECK(late.size() == (bytes == kLarge ? 0 : 1));
            Done again_sent, again;
            world[0].post_send(kGroup, 1, 77, data.data(), bytes, &again_sent);
            world[1].post_recv(kGroup, 0, 77, got.data(), bytes, &again);
            world.settle();
            CHECK(again.status.ok());
            CHECK(again.ended());
            CHECK(std::equal(data.begin(), data.end(), got.begin()));
        }
    }
}

TEST_CASE("bad posts are refused at once") {
    MessengerWorld world(2, kRing);
    int value = 0;
    Done unknown, rank, negative, null;
    world[0].post_send(99, 1, 0, &value, 4, &unknown);
    world[0].post_recv(kGroup, 2, 0, &value, 4, &rank);
    world[0].post_send(kGroup, 1, 0, &value, -4, &negative);
    world[0].post_recv(kGroup, 1, 0, nullptr, 4, &null);
    CHECK(unknown.status.code() == Code::closed);
    CHECK(rank.status.code() == Code::invalid_argument);
    CHECK(negative.status.code() == Code::invalid_argument);
    CHECK(null.status.code() == Code::invalid_argument);
    CHECK(world[0].add_communicator({kGroup, "again", 0, {-1, 0}, {}}).code() == Code::invalid_argument);
    CHECK(world[0].add_communicator({5, "bad", 2, {-1, 0}, {}}).code() == Code::invalid_argument);
    CHECK(world[0].add_communicator({5, "bad", 0, {-1, 9}, {}}).code() == Code::invalid_argument);
    int slot = 0;
    CHECK(world[0].add_peer({nullptr, 0}, {nullptr, 0}, nullptr, "x", &slot).code() == Code::invalid_argument);
}

TEST_CASE("fail_communicator ends every state, tells the peer, and drops what still comes") {
    MessengerWorld world(2, kRing);
    world.open(2, "other");
    const auto data = pattern(kLarge, 1);
    std::vector<unsigned char> got(data.size()), got_back(data.size());
    int value = 1;
    // Rank 0: streaming_send (1), awaiting_send (2), active_recv (3), posted_recv (4, any: 5); at 1, arrivals 2 and 6.
    Done streaming, awaiting, active, posted, any;
    Done peer_recv, peer_send, peer_done;
    world[0].post_send(kGroup, 1, 1, data.data(), kLarge, &streaming);
    world[1].post_recv(kGroup, 0, 1, got.data(), kLarge, &peer_recv);
    world[0].post_send(kGroup, 1, 2, data.data(), kLarge, &awaiting);
    world[1].post_send(kGroup, 0, 3, data.data(), kLarge, &peer_send);
    world[0].post_recv(kGroup, 1, 3, got_back.data(), kLarge, &active);
    world[0].post_recv(kGroup, 1, 4, &value, 4, &posted);
    world[0].post_recv(kGroup, Messenger::kAnyRank, 5, &value, 4, &any);
    world[0].post_send(kGroup, 1, 6, &value, 4, nullptr);
    for (int i = 0; i < 4; ++i) {
        world[0].progress();
        world[1].progress();
    }
    CHECK_FALSE(streaming.ended());
    CHECK_FALSE(peer_recv.ended());
    std::vector<Done> queued(100); // more than the ring holds
    for (Done& done : queued) world[0].post_send(kGroup, 1, 7, &value, 4, &done);
    CHECK_FALSE(queued.back().ended());

    world[0].fail_communicator(kGroup, kAborted);
    for (Done* done : {&streaming, &awaiting, &active, &posted, &any, &queued.back()}) {
        CHECK(done->calls == 1);
        CHECK(done->status.code() == Code::aborted);
    }
    std::fill(got_back.begin(), got_back.end(), 0);
    world.settle();
    CHECK(std::count(got_back.begin(), got_back.end(), 0) == kLarge); // late fragments touch nothing
    CHECK(peer_recv.status.code() == Code::peer_failed);
    CHECK(has(peer_recv.status, "rank 0 gave up its send"));
    CHECK(peer_send.status.code() == Code::peer_failed);
    CHECK(has(peer_send.status, "rank 0 gave up its receive"));
    Done late;
    world[0].post_send(kGroup, 1, 1, &value, 4, &late);
    CHECK(late.status.code() == Code::aborted);
    Done to_failed, large_to_failed;
    world[1].post_send(kGroup, 0, 1, &value, 4, &to_failed); // buffered: nobody hears it
    world[1].post_send(kGroup, 0, 1, data.data(), kLarge, &large_to_failed);
    world.settle();
    CHECK(to_failed.status.ok());
    CHECK(large_to_failed.status.code() == Code::peer_failed);
    CHECK(has(large_to_failed.status, "aborted there"));
    Done cancelled; // the announced message is gone at rank 1; the whole one can still be received
    world[1].post_recv(kGroup, 0, 2, got.data(), kLarge, &cancelled);
    CHECK_FALSE(cancelled.ended());
    world[1].post_recv(kGroup, 0, 6, &value, 4, &peer_done);
    CHECK(peer_done.ended());

    Done other_sent, other; // another communicator over the same ring goes on
    world[0].post_send(2, 1, 1, data.data(), kLarge, &other_sent);
    world[1].post_recv(2, 0, 1, got.data(), kLarge, &other);
    world.settle();
    CHECK(other.ended());
    CHECK(got == data);
    CHECK_FALSE(world[0].anything_pending());
    world[1].fail_communicator(kGroup, kAborted); // `cancelled` must not outlive its messenger's interest
    CHECK(cancelled.ended());
}

TEST_CASE("fail_peer ends every state, spares the others, and keeps what came whole") {
    MessengerWorld world(3, kRing);
    const auto data = pattern(kLarge, 1);
    std::vector<unsigned char> got(data.size()), back(data.size());
    int value = 5, small = 0, unseen = 0;
    Done streaming, awaiting, active, posted, any;
    world[0].post_send(kGroup, 1, 1, data.data(), kLarge, &streaming);
    world[1].post_recv(kGroup, 0, 1, got.data(), kLarge, nullptr);
    world[0].post_send(kGroup, 1, 2, data.data(), kLarge, &awaiting);
    world[1].post_send(kGroup, 0, 3, data.data(), kLarge, nullptr);
    world[0].post_recv(kGroup, 1, 3, back.data(), kLarge, &active);
    world[0].post_recv(kGroup, 1, 4, &small, 4, &posted);
    world[0].post_recv(kGroup, Messenger::kAnyRank, 5, &small, 4, &any);
    for (int i = 0; i < 4; ++i) {
        world[0].progress();
        world[1].progress();
    }
    std::vector<Done> queued(100);
    for (Done& done : queued) world[0].post_send(kGroup, 1, 7, &value, 4, &done);
    world[1].post_send(kGroup, 0, 8, &value, 4, nullptr); // in the ring, not seen yet
    Done bystander;
    std::vector<unsigned char> from_two(data.size());
    world[0].post_recv(kGroup, 2, 1, from_two.data(), kLarge, &bystander);
    world[2].post_send(kGroup, 0, 1, data.data(), kLarge, nullptr);

    world[0].fail_peer(world.slot(0, 1), kGone);
    const int wakes = world.wakes[1];
    for (Done* done : {&streaming, &awaiting, &active, &posted, &any, &queued.back()}) {
        CHECK(done->calls == 1);
        CHECK(done->status.message() == kGone.message());
    }
    std::memset(world.ring(0, 1).base, 0xff, size_t(kRing)); // the memory may go
    std::memset(world.ring(1, 0).base, 0xff, size_t(kRing));
    Done send_late, recv_late, any_late, whole;
    world[0].post_recv(kGroup, 1, 8, &unseen, 4, &whole);
    CHECK(whole.status.ok());
    CHECK(unseen == 5);
    world[0].post_send(kGroup, 1, 1, &value, 4, &send_late);
    world[0].post_recv(kGroup, 1, 1, &value, 4, &recv_late);
    world[0].post_recv(kGroup, Messenger::kAnyRank, 1, &value, 4, &any_late);
    CHECK(send_late.status.code() == Code::peer_failed);
    CHECK(recv_late.status.code() == Code::peer_failed);
    CHECK(any_late.status.code() == Code::peer_failed);
    CHECK(world[0].peer_status(world.slot(0, 1)).code() == Code::peer_failed);
    CHECK(world[0].peer_status(world.slot(0, 2)).ok());
    for (int i = 0; i < 2000; ++i) {
        world[0].progress();
        world[2].progress();
    }
    CHECK(bystander.status.ok());
    CHECK(bystander.ended());
    CHECK(from_two == data);
    CHECK(world.wakes[1] == wakes);
    CHECK_FALSE(world[0].anything_pending());
}

TEST_CASE("records that lie fail their peer, and only it") {
    struct Lie {
        const char* what;
        const char* message;
        void (*tell)(RecordHeader&);
    };
    const Lie lies[] = {
        {"kind", "kind 99", [](RecordHeader& h) { h.kind = RecordKind(99); }},
        {"length", "length 4294967232",
         [](RecordHeader& h) {
             h.kind = RecordKind::eager;
             h.length = 0xffffffc0u;
         }},
        {"source out of range", "source 77", [](RecordHeader& h) { h.source = 77; }},
        {"source of another", "source 2", [](RecordHeader& h) { h.source = 2; }},
        {"own rank as source", "source 0", [](RecordHeader& h) { h.source = 0; }},
        {"id never given", "never given out",
         [](RecordHeader& h) {
             h.kind = RecordKind::clear_to_send;
             h.message = 12345;
         }},
        {"id of the future", "never given out",
         [](RecordHeader& h) {
             h.kind = RecordKind::clear_to_send;
             h.message = uint64_t(99) << 32;
         }},
        {"clear to a receive", "another peer's",
         [](RecordHeader& h) {
             h.kind = RecordKind::clear_to_send;
             h.message = uint64_t(1) << 32;
         }},
        {"refuse of nothing", "never given out",
         [](RecordHeader& h) {
             h.kind = RecordKind::refuse;
             h.message = 4;
         }},
        {"cancel of nothing", "never given out",
         [](RecordHeader& h) {
             h.kind = RecordKind::cancel;
             h.offset = 4;
         }},
        {"mismatch of nothing", "never given out",
         [](RecordHeader& h) {
             h.kind = RecordKind::mismatch;
             h.message = 4;
         }},
        {"mismatch from nobody", "source 9",
         [](RecordHeader& h) {
             h.kind = RecordKind::mismatch;
             h.message = 0;
             h.source = 9;
         }},
    };
    for (const Lie& lie : lies) {
        CAPTURE(lie.what);
        MessengerWorld world(3, kRing);
        const auto data = pattern(kLarge, 1);
        int got = 0, value = 4;
        Done named, good;
        world[0].post_recv(kGroup, 2, 1, &got, 4, &good); // operation 0, of another peer
        world[0].post_recv(kGroup, 1, 9, &got, 4, &named);
        world[1].post_send(kGroup, 0, 1, data.data(), kLarge, nullptr);
        lie.tell(*reinterpret_cast<RecordHeader*>(static_cast<char*>(world.ring(1, 0).base) + 128));
        world[0].progress();
        REQUIRE(named.ended());
        CHECK(named.status.code() == Code::peer_failed);
        CHECK(has(named.status, "corrupt message record"));
        CHECK(has(named.status, "peer p1"));
        CHECK(has(named.status, lie.message));
        world[2].post_send(kGroup, 0, 1, &value, 4, nullptr);
        world[0].progress();
        CHECK(good.status.ok());
        CHECK(good.ended());
    }
}

TEST_CASE("fragments that do not follow fail their peer and write nothing") {
    struct Lie {
        const char* what;
        void (*tell)(RecordHeader&);
    };
    const Lie lies[] = {
        {"offset", [](RecordHeader& h) { h.offset += 1; }},
        {"past the receive",
         [](RecordHeader& h) {
             h.total = h.offset = uint64_t(1) << 40;
             h.total += h.length;
         }},
        {"id", [](RecordHeader& h) { h.message += 7; }},
    };
    for (const Lie& lie : lies) {
        CAPTURE(lie.what);
        MessengerWorld world(2, kRing);
        const auto data = pattern(kLarge, 1);
        std::vector<unsigned char> got(data.size());
        Done received;
        world[0].post_recv(kGroup, 1, 1, got.data(), kLarge, &received);
        world[1].post_send(kGroup, 0, 1, data.data(), kLarge, nullptr);
        world[0].progress();
        world[1].progress();
        lie.tell(*reinterpret_cast<RecordHeader*>(static_cast<char*>(world.ring(1, 0).base) + 128 + 64));
        world[0].progress();
        REQUIRE(received.ended());
        CHECK(received.status.code() == Code::peer_failed);
        CHECK(std::count(got.begin(), got.end(), 0) == kLarge);
    }
}

TEST_CASE("a lying read counter fails the peer") {
    MessengerWorld world(2, kRing);
    std::vector<Done> sent(200);
    const uint64_t lie = uint64_t(1) << 50;
    std::memcpy(static_cast<char*>(world.ring(0, 1).base) + kCellBytes, &lie, sizeof lie);
    int value = 1;
    for (Done& done : sent) world[0].post_send(kGroup, 1, 1, &value, 4, &done);
    world[0].progress();
    CHECK(sent.back().status.code() == Code::peer_failed);
    CHECK(has(sent.back().status, "read counter"));
}

TEST_CASE("forgotten communicators leave nothing and hear nothing") {
    MessengerWorld world(2, kRing);
    const auto data = pattern(kLarge, 1);
    std::vector<unsigned char> got(data.size());
    int value = 3;
    for (uint64_t id = 100; id < 1200; ++id) {
        world.open(id, "short-lived");
        world[0].post_send(id, 1, 1, &value, 4, nullptr); // never received
        world.settle();
        world[0].forget_communicator(id);
        world[1].forget_communicator(id);
    }
    world.open(5000, "x");
    Done sent, late, pending;
    world[1].post_recv(5000, 0, 9, &value, 4, &pending);
    world[1].forget_communicator(5000);
    CHECK(pending.status.code() == Code::closed);
    world[0].post_send(5000, 1, 1, data.data(), kLarge, &sent);
    world.settle();
    CHECK(sent.status.code() == Code::peer_failed); // told, not left waiting
    world[1].post_recv(5000, 0, 1, got.data(), kLarge, &late);
    CHECK(late.status.code() == Code::closed);
    CHECK_FALSE(world[1].anything_pending());
}

TEST_CASE("the end of the messenger ends what is pending") {
    auto world = std::make_unique<MessengerWorld>(2, kRing);
    int value = 0;
    Done done;
    (*world)[0].post_recv(kGroup, 1, 1, &value, 4, &done);
    world->ranks[0].reset();
    CHECK(done.status.code() == Code::closed);
    world.reset();
}
