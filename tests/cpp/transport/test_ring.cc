// The ring between two processes: every wrap position, full and empty, room on request, and headers that lie.
#include <doctest/doctest.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "transport/ring.h"

using namespace collectives;

namespace {

void copy(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, size_t(bytes)); }

struct Memory {
    explicit Memory(int64_t bytes) : cells(size_t(bytes / kCellBytes)) {}
    RingMemory ring() { return RingMemory{cells.data(), int64_t(cells.size()) * kCellBytes}; }
    struct alignas(kCellBytes) Cell {
        unsigned char bytes[kCellBytes] = {};
    };
    std::vector<Cell> cells;
};

RecordHeader eager(size_t length, uint32_t tag = 0) {
    RecordHeader header;
    header.kind = RecordKind::eager;
    header.communicator = 77;
    header.tag = tag;
    header.source = 3;
    header.length = uint32_t(length);
    header.total = length;
    return header;
}

std::vector<unsigned char> pattern(size_t length, unsigned seed) {
    std::vector<unsigned char> data(length);
    for (size_t i = 0; i < length; ++i) data[i] = static_cast<unsigned char>(i * 131 + seed * 7 + 1);
    return data;
}

bool read_one(RingReader& reader, const std::vector<unsigned char>& expected, uint32_t tag) {
    if (reader.peek() != RingReader::Peek::record)
        return false;
    const RecordHeader header = reader.header();
    std::vector<unsigned char> got(header.length);
    reader.read_payload(got.data(), copy);
    reader.pop();
    reader.publish();
    return header.tag == tag && header.communicator == 77 && header.source == 3 && got == expected;
}

} // namespace

TEST_CASE("ring memory is checked") {
    Memory memory(4096);
    CHECK(check_ring_memory(memory.ring()).ok());
    CHECK(check_ring_memory({nullptr, 4096}).code() == Code::invalid_argument);
    CHECK(check_ring_memory({memory.cells[0].bytes + 8, 2048}).code() == Code::invalid_argument);
    CHECK(check_ring_memory({memory.cells.data(), 512}).code() == Code::invalid_argument);
    CHECK(check_ring_memory({memory.cells.data(), 1000 + 64}).code() == Code::invalid_argument);
}

TEST_CASE("a record of every length comes through at every offset") {
    for (int64_t bytes : {kRingMinBytes, int64_t(4096)}) {
        const int64_t cells = bytes / kCellBytes - 2;
        for (int64_t start = 0; start < cells; ++start) {
            Memory memory(bytes);
            RingWriter writer(memory.ring());
            RingReader reader(memory.ring());
            for (int64_t i = 0; i < start; ++i) {
                REQUIRE(writer.try_write(eager(8, 1), "12345678", 0, copy));
                REQUIRE(read_one(reader, {'1', '2', '3', '4', '5', '6', '7', '8'}, 1));
            }
            for (size_t length : {size_t(0), size_t(1), size_t(31), size_t(32), size_t(33), size_t(64), size_t(65),
                                  size_t(127), size_t(500), size_t((cells - 2) * kCellBytes)}) {
                const auto data = pattern(length, unsigned(start));
                REQUIRE(writer.try_write(eager(length, uint32_t(length)), data.data(), 0, copy));
                REQUIRE(read_one(reader, data, uint32_t(length)));
                REQUIRE(reader.peek() == RingReader::Peek::empty);
            }
        }
    }
}

TEST_CASE("a full ring refuses, keeps what it has, and takes more when read") {
    Memory memory(kRingMinBytes); // 14 cells
    RingWriter writer(memory.ring());
    RingReader reader(memory.ring());
    uint32_t written = 0;
    while (writer.try_write(eager(4, written), "abcd", 0, copy)) ++written;
    CHECK(written == 13); // one cell stays free for the empty stamp
    CHECK_FALSE(writer.await_room());
    CHECK(read_one(reader, {'a', 'b', 'c', 'd'}, 0));
    CHECK(writer.try_write(eager(4, written), "abcd", 0, copy));
    CHECK_FALSE(writer.try_write(eager(4, 99), "abcd", 0, copy));
    for (uint32_t tag = 1; tag <= written; ++tag) CHECK(read_one(reader, {'a', 'b', 'c', 'd'}, tag));
    CHECK(reader.peek() == RingReader::Peek::empty);
    CHECK_FALSE(writer.try_write(eager(4), "abcd", 13 * kCellBytes, copy));
    CHECK(writer.try_write(eager(4), "abcd", 12 * kCellBytes, copy));
}

TEST_CASE("the reader says when a waiting writer has room") {
    Memory memory(kRingMinBytes);
    RingWriter writer(memory.ring());
    RingReader reader(memory.ring());
    while (writer.try_write(eager(4), "abcd", 0, copy)) {
    }
    REQUIRE(reader.peek() == RingReader::Peek::record);
    reader.pop();
    CHECK_FALSE(reader.publish()); // nobody has asked
    REQUIRE(writer.await_room());  // asks, and finds that room at once
    reader.peek();
    reader.pop();
    CHECK(reader.publish());
    reader.peek();
    reader.pop();
    CHECK_FALSE(reader.publish()); // told once
}

TEST_CASE("old payload that looks like a stamp is not taken for a record") {
    Memory memory(kRingMinBytes);
    RingWriter writer(memory.ring());
    RingReader reader(memory.ring());
    for (uint64_t round = 0; round < 200; ++round) {
        uint64_t fake[40]; // whatever position comes next lap: all of them
        for (size_t i = 0; i < 40; ++i) fake[i] = (round * 6 + i / 8 + 14 - (14 * (i % 2))) * kCellBytes + 1;
        REQUIRE(writer.try_write(eager(sizeof fake), fake, 0, copy));
        REQUIRE(reader.peek() == RingReader::Peek::record);
        reader.pop();
        reader.publish();
        REQUIRE(reader.peek() == RingReader::Peek::empty);
    }
}

TEST_CASE("headers that lie are refused") {
    struct Lie {
        const char* what;
        void (*tell)(RecordHeader&);
    };
    const Lie lies[] = {
        {"unknown kind", [](RecordHeader& h) { h.kind = RecordKind(200); }},
        {"no kind", [](RecordHeader& h) { h.kind = RecordKind::none; }},
        {"longer than the ring",
         [](RecordHeader& h) {
             h.length = 0xffffffc0u;
             h.total = h.length;
         }},
        {"as long as the ring",
         [](RecordHeader& h) {
             h.length = 4096 - 128;
             h.total = h.length;
         }},
        {"total is not length", [](RecordHeader& h) { h.total = 101; }},
        {"inline but long", [](RecordHeader& h) { h.is_inline = 1; }},
        {"inline fragment",
         [](RecordHeader& h) {
             h.kind = RecordKind::fragment;
             h.length = 8;
             h.is_inline = 1;
         }},
        {"stamp", [](RecordHeader& h) { h.stamp = 65; }},
        {"fragment past the end",
         [](RecordHeader& h) {
             h.kind = RecordKind::fragment;
             h.total = 150;
             h.offset = 100;
         }},
        {"fragment offset overflow",
         [](RecordHeader& h) {
             h.kind = RecordKind::fragment;
             h.total = 150;
             h.offset = ~uint64_t(0) - 10;
         }},
        {"empty fragment",
         [](RecordHeader& h) {
             h.kind = RecordKind::fragment;
             h.length = 0;
         }},
        {"negative size",
         [](RecordHeader& h) {
             h.kind = RecordKind::request_to_send;
             h.length = 0;
             h.total = ~0ull;
         }},
        {"control with payload", [](RecordHeader& h) { h.kind = RecordKind::clear_to_send; }},
        {"reserved", [](RecordHeader& h) { h.reserved = 1; }},
    };
    for (const Lie& lie : lies) {
        CAPTURE(lie.what);
        Memory memory(4096);
        RingWriter writer(memory.ring());
        RingReader reader(memory.ring());
        const auto data = pattern(100, 1);
        REQUIRE(writer.try_write(eager(100), data.data(), 0, copy));
        lie.tell(*reinterpret_cast<RecordHeader*>(memory.cells[2].bytes));
        CHECK(reader.peek() == RingReader::Peek::corrupt);
        CHECK(reader.error().find("corrupt message record") != std::string::npos);
    }
}

TEST_CASE("a read counter that lies stops the writer") {
    for (uint64_t lie : {uint64_t(64 * 1000), ~uint64_t(0), uint64_t(3)}) {
        Memory memory(kRingMinBytes);
        RingWriter writer(memory.ring());
        std::memcpy(memory.cells[1].bytes, &lie, sizeof lie);
        while (writer.try_write(eager(4), "abcd", 0, copy)) {
        }
        CHECK(writer.corrupt());
        CHECK_FALSE(writer.await_room());
    }
}

TEST_CASE("two threads, random lengths, both ends wait by asking") {
    Memory memory(2048);
    constexpr uint32_t kRecords = 20000;
    std::thread sender([&] {
        RingWriter writer(memory.ring());
        std::minstd_rand random(5);
        for (uint32_t i = 0; i < kRecords; ++i) {
            const auto data = pattern(random() % 600, i);
            while (!writer.try_write(eager(data.size(), i), data.data(), 0, copy)) {
                if (!writer.await_room())
                    std::this_thread::yield();
            }
        }
    });
    RingReader reader(memory.ring());
    std::minstd_rand random(5);
    uint32_t good = 0;
    for (uint32_t i = 0; i < kRecords; ++i) {
        const auto data = pattern(random() % 600, i);
        while (reader.peek() == RingReader::Peek::empty) std::this_thread::yield();
        good += read_one(reader, data, i);
    }
    sender.join();
    CHECK(good == kRecords);
}

TEST_CASE("two processes that map it at different addresses") {
    const int fd = memfd_create("ring", 0);
    REQUIRE(fd >= 0);
    REQUIRE(ftruncate(fd, 4096) == 0);
    const auto map = [fd] { return mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); };
    void* const mine = map();
    const pid_t child = fork();
    if (child == 0) {
        RingWriter writer({map(), 4096}); // a second mapping: another address
        for (uint32_t i = 0; i < 1000; ++i) {
            const auto data = pattern(i, i);
            while (!writer.try_write(eager(i, i), data.data(), 0, copy)) sched_yield();
        }
        _exit(0);
    }
    RingReader reader({mine, 4096});
    uint32_t good = 0;
    for (uint32_t i = 0; i < 1000; ++i) {
        while (reader.peek() == RingReader::Peek::empty) sched_yield();
        good += read_one(reader, pattern(i, i), i);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
    CHECK(good == 1000);
    munmap(mine, 4096);
    close(fd);
}
