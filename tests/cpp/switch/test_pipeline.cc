// The switch's pipeline, row by row of the table in docs/protocol.md; and jobs: who is admitted, with what, and why not.
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "switch/pipeline.h"

using namespace collectives;
using namespace collectives::aggregation;

namespace {

Source worker_at(int w) { return ipv4_port(10, 0, 0, uint8_t(w + 1), uint16_t(40000 + w)); }

wire::PacketHeader update(uint32_t epoch, uint64_t chunk_id = 1, int lanes = 4, int lane_bits = 32) {
    wire::PacketHeader h;
    h.magic = wire::kPacketMagic;
    h.version = wire::kPacketVersion;
    h.kind = uint8_t(wire::PacketKind::update);
    h.lanes = uint16_t(lanes);
    h.lane_bits = uint8_t(lane_bits);
    h.job = 7;
    h.incarnation = 5;
    h.epoch = epoch;
    h.chunk_id = chunk_id;
    h.next_exponent = wire::kLowestExponent;
    return h;
}

template <class T> std::vector<uint8_t> datagram(const wire::PacketHeader& header, const std::vector<T>& lanes) {
    std::vector<uint8_t> bytes(wire::kPacketHeaderBytes + sizeof(T) * lanes.size());
    wire::encode_packet(header, bytes.data());
    for (size_t i = 0; i < lanes.size(); ++i)
        wire::packet_detail::store<T>(&bytes[wire::kPacketHeaderBytes + sizeof(T) * i], lanes[i]);
    return bytes;
}

/// A switch with job 7 of `workers` workers, and what it said last.
struct Rig {
    SwitchPipeline pipeline;
    std::vector<uint8_t> out = std::vector<uint8_t>(wire::kMostPacketBytes);
    Reply said;
    wire::PacketHeader header;

    explicit Rig(int workers, uint32_t slots = 2, int most_lanes = 64) {
        Admission admission{7, 5, {}, slots, most_lanes};
        for (int w = 0; w < workers; ++w) admission.workers.push_back(worker_at(w));
        REQUIRE(pipeline.admit(admission).ok());
    }
    Verdict raw(const Source& from, const std::vector<uint8_t>& bytes, int64_t now_ns = 0) {
        said = pipeline.process(from, bytes.data(), bytes.size(), now_ns, out.data());
        header = said.bytes > 0 ? wire::decode_packet(out.data()) : wire::PacketHeader{};
        return said.verdict;
    }
    template <class T = int32_t>
    Verdict send(int w, const wire::PacketHeader& h, const std::vector<T>& lanes, int64_t now_ns = 0) {
        return raw(worker_at(w), datagram<T>(h, lanes), now_ns);
    }
    template <class T = int32_t> std::vector<T> lanes() const {
        std::vector<T> values;
        for (int i = 0; i < header.lanes; ++i)
            values.push_back(wire::packet_detail::load<T>(&out[wire::kPacketHeaderBytes + sizeof(T) * size_t(i)]));
        return values;
    }
};

const std::vector<int32_t> kOne{1, 2, 3, -4}, kTwo{10, 20, 30, 40};

} // namespace

TEST_CASE("switch: the last worker's packet brings the sum, to all") {
    Rig rig(2);
    CHECK(rig.send(0, update(1), kOne) == Verdict::added);
    CHECK(rig.said.bytes == 0);
    CHECK(rig.send(1, update(1), kTwo) == Verdict::completed);
    CHECK(rig.said.worker == -1);
    CHECK(rig.lanes() == std::vector<int32_t>{11, 22, 33, 36});
    CHECK(rig.header.kind == uint8_t(wire::PacketKind::result));
    CHECK(rig.header.mask == 3);
    CHECK(rig.header.count == 2);
    CHECK(rig.header.worker == wire::kFromSwitch);
}

TEST_CASE("switch: a packet again, before the sum and after it, adds nothing") {
    Rig rig(2);
    (void)rig.send(0, update(1), kOne);
    CHECK(rig.send(0, update(1), kOne) == Verdict::duplicate);
    CHECK(rig.said.bytes == 0);
    CHECK(rig.send(1, update(1), kTwo) == Verdict::completed);
    CHECK(rig.send(1, update(1), kTwo) == Verdict::replayed);
    CHECK(rig.said.worker == 1);
    CHECK(rig.lanes() == std::vector<int32_t>{11, 22, 33, 36});
    CHECK(rig.header.flags == wire::kFlagRetransmission);
}

TEST_CASE("switch: of the epochs of a slot, the current one, the one before, and the next when this one is complete") {
    Rig rig(2);
    CHECK(rig.send(0, update(2), kOne) == Verdict::early);
    CHECK(rig.send(0, update(0), kOne) == Verdict::late);
    (void)rig.send(0, update(1), kOne);
    CHECK(rig.send(0, update(2), kOne) == Verdict::early); // 1 is not complete
    (void)rig.send(1, update(1), kOne);
    CHECK(rig.send(0, update(2, 2), kTwo) == Verdict::added);
    CHECK(rig.send(1, update(1), kOne) == Verdict::replayed); // lost its result of 1; 2 is under way
    CHECK(rig.lanes() == std::vector<int32_t>{2, 4, 6, -8});
    CHECK(rig.header.epoch == 1);
    CHECK(rig.send(1, update(2, 2), kTwo) == Verdict::completed);
    CHECK(rig.send(0, update(3, 3), kOne) == Verdict::added); // in the cell of 1
    CHECK(rig.send(1, update(1), kOne) == Verdict::late);     // a copy that was on its way for long
    CHECK(rig.send(0, update(5, 3), kOne) == Verdict::early);
    CHECK(rig.send(1, update(3, 3), kOne) == Verdict::completed);
    CHECK(rig.lanes() == std::vector<int32_t>{2, 4, 6, -8});
}

TEST_CASE("switch: epochs go round at 2^32") {
    Rig rig(1);
    rig.pipeline.release(7);
    Job job;
    job.number = 7;
    job.incarnation = 5;
    job.most_lanes = 4;
    job.workers.push_back({.at = worker_at(0)});
    job.slots.resize(1);
    job.sums.resize(8);
    job.slots[0].current = 0xFFFFFFFE;
    for (uint32_t epoch : {0xFFFFFFFFu, 0u, 1u}) {
        const auto bytes = datagram(update(epoch, epoch), kOne);
        Visit visit;
        parse(visit, {}, bytes.data(), bytes.size());
        visit.job = &job;
        visit.worker = 0;
        serve(visit);
        CHECK(visit.verdict == Verdict::completed);
    }
    const auto bytes = datagram(update(0xFFFFFFFF, 0xFFFFFFFF), kOne);
    Visit visit;
    parse(visit, {}, bytes.data(), bytes.size());
    visit.job = &job;
    visit.worker = 0;
    serve(visit);
    CHECK(visit.verdict == Verdict::late);
}

TEST_CASE("switch: other data in the same cell is an error that all hear of, and changes nothing") {
    auto differs = [](auto change) {
        Rig rig(3);
        (void)rig.send(0, update(1), kOne);
        wire::PacketHeader other = update(1);
        change(other);
        std::vector<int32_t> lanes(other.lanes, 9);
        CHECK(rig.send(1, other, lanes) == Verdict::mismatch);
        CHECK(rig.said.worker == -1);
        CHECK(rig.header.kind == uint8_t(wire::PacketKind::mismatch));
        CHECK(rig.header.mask == 1);
        CHECK(rig.header.chunk_id == 1);
        CHECK(rig.lanes() == kOne);
        CHECK(rig.send(1, update(1), kTwo) == Verdict::added);
    };
    differs([](auto& h) { h.chunk_id = 2; });
    differs([](auto& h) { h.exponent = 1; });
    differs([](auto& h) { h.lanes = 5; });
    Rig rig(2);
    (void)rig.send(0, update(1), kOne);
    CHECK(rig.send<int16_t>(1, update(1, 1, 4, 16), {1, 2, 3, 4}) == Verdict::mismatch);
}

TEST_CASE("switch: 32 bits wrap, narrower lanes are limited once and say so, whatever the order") {
    Rig wraps(2);
    (void)wraps.send(0, update(1, 1, 2), std::vector<int32_t>{INT32_MAX, INT32_MIN});
    (void)wraps.send(1, update(1, 1, 2), std::vector<int32_t>{1, -1});
    CHECK(wraps.lanes() == std::vector<int32_t>{INT32_MIN, INT32_MAX});
    CHECK(wraps.header.flags == 0);
    for (bool turned : {false, true}) { // 100 + 100 - 100 = 100, and no sum on the way to it was limited
        Rig narrow(3);
        const std::vector<std::vector<int8_t>> all{{100, 100, -100}, {100, 27, -28}, {-100, 0, -1}};
        for (int i = 0; i < 3; ++i) {
            const int w = turned ? 2 - i : i;
            (void)narrow.send<int8_t>(w, update(1, 1, 3, 8), all[size_t(w)]);
        }
        CHECK(narrow.lanes<int8_t>() == std::vector<int8_t>{100, 127, -128});
        CHECK(narrow.header.flags == wire::kFlagOverflow);
    }
    Rig exact(2);
    (void)exact.send<int16_t>(0, update(1, 1, 2, 16), {32767, -32768});
    (void)exact.send<int16_t>(1, update(1, 1, 2, 16), {0, 0});
    CHECK(exact.lanes<int16_t>() == std::vector<int16_t>{32767, -32768});
    CHECK(exact.header.flags == 0);
}

TEST_CASE("switch: flags are OR-ed, retransmission left out, and the largest next exponent is told") {
    Rig rig(2);
    wire::PacketHeader one = update(1), two = update(1);
    one.flags = wire::kFlagNotANumber | wire::kFlagRetransmission;
    one.next_exponent = -7;
    two.flags = wire::kFlagCongestion;
    two.next_exponent = -9;
    (void)rig.send(0, one, kOne);
    (void)rig.send(1, two, kOne);
    CHECK(rig.header.flags == (wire::kFlagNotANumber | wire::kFlagCongestion));
    CHECK(rig.header.next_exponent == -7);
}

TEST_CASE("switch: strangers and old starts change nothing, and are counted") {
    Rig rig(2);
    const auto good = datagram(update(1), kOne);
    CHECK(rig.raw(worker_at(5), good) == Verdict::stranger);
    Source other_port = worker_at(0);
    ++other_port.port;
    CHECK(rig.raw(other_port, good) == Verdict::stranger);
    wire::PacketHeader h = update(1);
    h.job = 8;
    CHECK(rig.send(0, h, kOne) == Verdict::stranger);
    h = update(1);
    h.incarnation = 4;
    CHECK(rig.send(0, h, kOne) == Verdict::stale_incarnation);
    h = update(1);
    h.slot = 2;
    CHECK(rig.send(0, h, kOne) == Verdict::outside);
    CHECK(rig.send(0, update(1, 1, 65), std::vector<int32_t>(65)) == Verdict::outside); // more lanes than it asked for
    for (size_t bytes : {size_t(0), size_t(55), size_t(56), good.size() - 1})
        CHECK(rig.raw(worker_at(0), {good.begin(), good.begin() + long(bytes)}) == Verdict::malformed);
    std::vector<uint8_t> longer = good;
    longer.push_back(0);
    CHECK(rig.raw(worker_at(0), longer) == Verdict::malformed);
    h = update(1);
    h.kind = uint8_t(wire::PacketKind::result);
    CHECK(rig.send(0, h, kOne) == Verdict::malformed);
    CHECK(rig.pipeline.counter(Verdict::malformed) == 6);
    CHECK(rig.pipeline.counter(Verdict::stranger) == 3);
    CHECK(rig.send(0, update(1), kOne) == Verdict::added); // as if nothing had come
}

TEST_CASE("switch: a job that starts again begins with fresh slots, and its old packets are fenced off") {
    Rig rig(2);
    (void)rig.send(0, update(1), kOne);
    Admission again{7, 6, {worker_at(0), worker_at(1)}, 2, 64};
    REQUIRE(rig.pipeline.admit(again).ok());
    CHECK(rig.send(1, update(1), kTwo) == Verdict::stale_incarnation);
    wire::PacketHeader h = update(1);
    h.incarnation = 6;
    CHECK(rig.send(1, h, kTwo) == Verdict::added);
    CHECK(rig.send(0, h, kOne) == Verdict::completed);
    CHECK(rig.lanes() == std::vector<int32_t>{11, 22, 33, 36});
    CHECK(rig.pipeline.release(7));
    CHECK_FALSE(rig.pipeline.release(7));
    CHECK(rig.send(0, h, kOne) == Verdict::stranger);
}

TEST_CASE("switch: who asks for too much is refused with the reason, and nobody else suffers") {
    SwitchPipeline pipeline(100'000);
    CHECK(pipeline.admit({1, 1, {worker_at(0)}, 10, 256}).ok());
    const Status much = pipeline.admit({2, 1, {worker_at(1)}, 1000, 256});
    CHECK(much.code() == Code::unsupported);
    CHECK(much.message().find("are left: ask for fewer slots") != std::string::npos);
    CHECK(pipeline.admit({2, 1, {worker_at(1)}, 10, 256}).ok());
    CHECK(pipeline.admit({1, 1, {worker_at(0)}, 10, 256}).code() == Code::invalid_argument); // this start is running
    CHECK(pipeline.admit({1, 2, {worker_at(0)}, 20, 256}).ok());                             // its own slots come free
    CHECK(pipeline.admit({3, 1, {}, 1, 1}).code() == Code::invalid_argument);
    CHECK(pipeline.admit({3, 1, std::vector<Source>(65), 1, 1}).code() == Code::invalid_argument);
    CHECK(pipeline.admit({3, 1, {worker_at(3), worker_at(3)}, 1, 1}).code() == Code::invalid_argument);
    CHECK(pipeline.admit({3, 1, {worker_at(3)}, 0, 1}).code() == Code::invalid_argument);
    CHECK(pipeline.admit({3, 1, {worker_at(3)}, 1, 2049}).code() == Code::invalid_argument);
}

TEST_CASE("switch: 64 workers, 2,048 lanes, and one alone") {
    Rig many(64, 1, 2048);
    std::vector<int32_t> ones(2048, 1);
    for (int w = 0; w < 63; ++w) CHECK(many.send(w, update(1, 1, 2048), ones) == Verdict::added);
    CHECK(many.send(63, update(1, 1, 2048), ones) == Verdict::completed);
    CHECK(many.header.mask == ~uint64_t(0));
    CHECK(many.lanes() == std::vector<int32_t>(2048, 64));
    Rig alone(1);
    CHECK(alone.send(0, update(1), kOne) == Verdict::completed);
    CHECK(alone.send(0, update(2), kTwo) == Verdict::completed);
    CHECK(alone.lanes() == kTwo);
}

TEST_CASE("switch: what it waits for, the oldest first, and for whom") {
    Rig rig(3);
    CHECK(rig.pipeline.waiting().empty());
    wire::PacketHeader h = update(1);
    h.slot = 1;
    (void)rig.send(2, h, kOne, 500);
    (void)rig.send(0, update(1), kOne, 700);
    REQUIRE(rig.pipeline.waiting().size() == 1);
    const Waiting oldest = rig.pipeline.waiting()[0];
    CHECK(oldest.slot == 1);
    CHECK(oldest.begun_ns == 500);
    CHECK(oldest.missing == 3);
}

TEST_CASE("switch: with a key, untagged and wrongly tagged packets change nothing, and replies are tagged") {
    Rig rig(1);
    wire::TagKey key{};
    key[3] = 9;
    const wire::Tagger tagger(key);
    rig.pipeline.release(7);
    REQUIRE(rig.pipeline.admit({7, 5, {worker_at(0), worker_at(1)}, 2, 64, key}).ok());
    for (int w : {0, 1}) {
        std::vector<uint8_t> packet = datagram(update(1), kOne);
        CHECK(rig.raw(worker_at(w), packet) == Verdict::bad_tag);
        tagger.sign(packet.data(), packet.size());
        packet.back() ^= 1;
        CHECK(rig.raw(worker_at(w), packet) == Verdict::bad_tag);
        CHECK(rig.said.bytes == 0);
        packet.back() ^= 1;
        CHECK(rig.raw(worker_at(w), packet) == (w == 0 ? Verdict::added : Verdict::completed));
    }
    CHECK(tagger.verify(rig.out.data(), rig.said.bytes));
    CHECK(rig.lanes() == std::vector<int32_t>{2, 4, 6, -8});
    const Job& job = *rig.pipeline.jobs()[0];
    CHECK(job.workers[0].counts[size_t(Verdict::bad_tag)] == 2);
    CHECK(job.slot_counts[0][size_t(Verdict::completed)] == 1);
    CHECK(job.slot_counts[0][size_t(Verdict::bad_tag)] == 0);
}

TEST_CASE("switch: a probe is answered with as many bytes, to an admitted worker alone, and touches no slot") {
    Rig rig(2);
    wire::PacketHeader probe = update(0, 77, 64);
    probe.kind = uint8_t(wire::PacketKind::probe);
    const std::vector<uint8_t> packet = datagram(probe, std::vector<int32_t>(64, 5));
    CHECK(rig.raw(worker_at(1), packet) == Verdict::probed);
    CHECK(rig.said.worker == 1);
    CHECK(rig.said.bytes == packet.size());
    CHECK(rig.header.kind == uint8_t(wire::PacketKind::probed));
    CHECK(rig.header.chunk_id == 77);
    CHECK(rig.lanes() == std::vector<int32_t>(64, 0));
    CHECK(rig.raw(worker_at(5), packet) == Verdict::stranger);
    CHECK(rig.said.bytes == 0);
    probe.lanes = 65; // more than the job was admitted for
    CHECK(rig.raw(worker_at(1), datagram(probe, std::vector<int32_t>(65, 5))) == Verdict::outside);
    probe.lanes = 64;
    probe.incarnation = 4;
    CHECK(rig.raw(worker_at(1), datagram(probe, std::vector<int32_t>(64, 5))) == Verdict::stale_incarnation);
    CHECK(rig.send(0, update(1), kOne) == Verdict::added); // epoch 1 has still to begin
    SwitchPipeline of_one_size(1 << 20, {64, 32});
    REQUIRE(of_one_size.admit({7, 5, {worker_at(1)}, 2, 64}).ok());
    CHECK(of_one_size.process(worker_at(1), packet.data(), packet.size(), 0, rig.out.data()).verdict ==
          Verdict::malformed);
}

TEST_CASE("switch: all that a job keeps counts against the pool, its counters and its key as well") {
    constexpr uint32_t kSlots = 1000;
    constexpr int64_t kKept = int64_t(kSlots) * int64_t(sizeof(Slot) + sizeof(Counts) + 2 * sizeof(int32_t));
    const Admission plain{7, 5, {worker_at(0)}, kSlots, 1};
    Admission tagged = plain;
    tagged.key = wire::TagKey{};
    CHECK(SwitchPipeline(kKept - 1).admit(plain).code() == Code::unsupported);
    CHECK(SwitchPipeline(kKept).admit(tagged).code() == Code::unsupported);
    SwitchPipeline pipeline(kKept);
    for (int i = 0; i < 3; ++i) { // what is released can be had again, no more and no less
        CHECK(pipeline.admit(plain).ok());
        CHECK(pipeline.admit({8, 5, {worker_at(1)}, 1, 1}).code() == Code::unsupported);
        CHECK(pipeline.release(7));
    }
    SwitchPipeline larger(kKept + int64_t(sizeof(wire::Tagger)));
    CHECK(larger.admit(tagged).ok());
    tagged.incarnation = 6; // in the place of the first
    CHECK(larger.admit(tagged).ok());
}
