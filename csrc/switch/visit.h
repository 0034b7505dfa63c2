// What one packet meets on its way through the switch: a Visit is handed from control to control, each of which looks at what
// those before it found, and may end it with a verdict. Also what the switch keeps: slots and their cells.
// docs/protocol.md is what all of it is built to; p4/ has the twins of the controls, file by file. Included by switch only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ip_port.h"
#include "wire/packet.h"
#include "wire/tag.h"

namespace collectives::aggregation {

/// Where a packet came from.
using Source = IpPort;

// What became of a packet; also the names of the counters.
#define COLLECTIVES_VERDICTS(VERDICT)                                                                                  \
    VERDICT(malformed)                                                                                                 \
    VERDICT(stranger)                                                                                                  \
    VERDICT(bad_tag)                                                                                                   \
    VERDICT(stale_incarnation)                                                                                         \
    VERDICT(outside)                                                                                                   \
    VERDICT(probed)                                                                                                    \
    VERDICT(late)                                                                                                      \
    VERDICT(early)                                                                                                     \
    VERDICT(mismatch)                                                                                                  \
    VERDICT(duplicate)                                                                                                 \
    VERDICT(replayed)                                                                                                  \
    VERDICT(added)                                                                                                     \
    VERDICT(completed)

enum class Verdict : uint8_t {
    none, // goes on
#define VERDICT(name) name,
    COLLECTIVES_VERDICTS(VERDICT)
#undef VERDICT
        count,
};
const char* name_of(Verdict verdict);

/// One epoch of a slot. count 0: never begun.
struct Cell {
    uint32_t epoch = 0;
    uint16_t count = 0;
    uint16_t flags = 0;
    uint64_t chunk_id = 0;
    uint64_t mask = 0;
    int16_t exponent = 0;
    int16_t next_exponent = 0;
    uint16_t lanes = 0;
    uint8_t lane_bits = 0;
    int64_t begun_ns = 0;
};

struct Slot {
    uint32_t current = 0; // the newest epoch
    Cell cells[2];        // of even and of odd epochs
};

/// Packets by what became of them.
using Counts = std::array<uint64_t, size_t(Verdict::count)>;

/// A worker of a job.
struct Member {
    Source at;
    int door = 0; // which of the switch's sockets its newest packet came to: where it is answered from
    int64_t last_ns = 0;
    Counts counts{};
};

/// A job that was admitted, and its part of the pool.
struct Job {
    uint32_t number = 0, incarnation = 0;
    int most_lanes = 0;
    std::shared_ptr<const wire::Tagger> tagger; // null: tags are off
    std::vector<Member> workers;
    std::vector<Counts> slot_counts;
    std::vector<Slot> slots;
    std::vector<int32_t> sums; // of slot s in its cell c: most_lanes from (2 s + c) most_lanes on

    int32_t* sums_of(uint32_t slot, uint32_t cell) { return &sums[(2 * size_t(slot) + cell) * size_t(most_lanes)]; }
};

/// Which packets a switch serves; 0: all. A P4 program is built for one number of lanes of one width.
struct Served {
    int lanes = 0, lane_bits = 0;
};

struct Visit {
    wire::PacketHeader header;
    const uint8_t* datagram = nullptr;
    size_t bytes = 0;
    const uint8_t* lanes = nullptr; // as they came
    int64_t now_ns = 0;
    Job* job = nullptr;
    int worker = -1; // its number, by where it came from
    Slot* slot = nullptr;
    Cell* cell = nullptr; // of the packet's epoch
    int32_t* sums = nullptr;
    bool begins = false; // the packet's epoch
    Verdict verdict = Verdict::none;

    bool goes_on() const { return verdict == Verdict::none; }
    uint64_t mine() const { return uint64_t(1) << worker; }
    bool complete(const Cell& c) const { return c.count == job->workers.size(); }
};

// The controls, in the order in which a packet meets them; each in the file of its name.
void parse(Visit& visit, const Served& served, const uint8_t* datagram, size_t bytes);
void tag(Visit& visit);
void fence(Visit& visit);
void probe(Visit& visit);
void epoch(Visit& visit);
void seen(Visit& visit);
void count(Visit& visit);
void aggregate(Visit& visit);
/// The controls from tag() to aggregate(), in their order: all that a packet of an admitted worker meets. pipeline.cc.
void serve(Visit& visit);
/// Writes the reply of the cell, or to the probe, that the visit is about; its bytes.
size_t reply(const Visit& visit, uint8_t* out);

} // namespace collectives::aggregation
