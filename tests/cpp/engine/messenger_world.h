// Ranks of one process whose messengers are joined by rings in ordinary memory, for the messenger's tests and
// benchmark.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/messenger.h"

namespace collectives::testing {

struct Done final : Completion {
    void message_done(const Status& s, int rank) override {
        status = s;
        source = rank;
        calls.fetch_add(1, std::memory_order_release);
    }
    bool ended() const { return calls.load(std::memory_order_acquire) > 0; }

    Status status;
    int source = -2;
    std::atomic<int> calls{0};
};

constexpr int64_t kRing = 4096;
constexpr int64_t kLarge = 100 * 1000 + 7; // a message that streams, many rings long

inline const Status kGone(Code::peer_failed, "process 1 died");
inline const Status kAborted(Code::aborted, "abort() was called");

inline std::vector<unsigned char> pattern(int64_t bytes, unsigned seed) {
    std::vector<unsigned char> data(static_cast<size_t>(bytes));
    for (size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<unsigned char>((i * 2654435761u >> 13) + seed * 37 + 1);
    return data;
}

inline bool has(const Status& status, const std::string& part) {
    return status.message().find(part) != std::string::npos;
}

constexpr uint64_t kGroup = 1; // open on all ranks from the start

class MessengerWorld {
  public:
    MessengerWorld(int size, int64_t ring_bytes, const MessengerConfig& config = {}) : size_(size) {
        wakes = std::vector<std::atomic<int>>(size_t(size));
        for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<Messenger>(config));
        slots_.assign(size_t(size), std::vector<int>(size_t(size), Messenger::kNoPeer));
        for (int i = 0; i < size * size; ++i) memory_.emplace_back(size_t(ring_bytes / kCellBytes));
        for (int a = 0; a < size; ++a) {
            for (int b = 0; b < size; ++b) {
                if (a != b)
                    check(ranks[size_t(a)]->add_peer(
                        ring(a, b), ring(b, a), [this, b] { wakes[size_t(b)].fetch_add(1); }, "p" + std::to_string(b),
                        &slots_[size_t(a)][size_t(b)]));
            }
        }
        open(kGroup, "world");
    }

    void open(uint64_t id, const std::string& name) {
        for (int rank = 0; rank < size_; ++rank) open_at(rank, id, name);
    }
    void open_at(int rank, uint64_t id, const std::string& name) {
        check(ranks[size_t(rank)]->add_communicator({id, name, rank, slots_[size_t(rank)], {}}));
    }

    int slot(int at, int of) const { return slots_[size_t(at)][size_t(of)]; }
    RingMemory ring(int from, int to) {
        auto& cells = memory_[size_t(from * size_ + to)];
        return {cells.data(), int64_t(cells.size()) * kCellBytes};
    }
    Messenger& operator[](int rank) { return *ranks[size_t(rank)]; }

    /// Runs all ranks' progress on this thread until nothing moves.
    void settle() {
        for (bool moved = true; moved;) {
            moved = false;
            for (auto& messenger : ranks) moved |= messenger->progress();
        }
    }

    /// Runs one rank's progress until `done`; ends the process after a minute, for a hang must not look like a pass.
    void wait(int rank, const Done& done) {
        int64_t deadline = 0;
        for (int idle = 0; !done.ended();) {
            idle = ranks[size_t(rank)]->progress() ? 0 : idle + 1;
            if (idle < 100)
                continue;
            std::this_thread::yield();
            const int64_t now = monotonic_ns();
            deadline = deadline == 0 ? now + 60 * kSecond : deadline;
            if (now > deadline) {
                std::fprintf(stderr, "messenger test: rank %d hangs\n", rank);
                std::abort();
            }
        }
    }

  private:
    struct alignas(kCellBytes) Cell {
        unsigned char bytes[kCellBytes] = {};
    };
    int size_;
    std::vector<std::vector<int>> slots_;
    std::vector<std::vector<Cell>> memory_; // outlives the messengers

  public:
    std::vector<std::atomic<int>> wakes; // by rank: how often its doorbell rang
    std::vector<std::unique_ptr<Messenger>> ranks;

  private:
    static void check(const Status& status) {
        if (!status.ok()) {
            std::fprintf(stderr, "messenger test: %s\n", status.message().c_str());
            std::abort();
        }
    }
};

} // namespace collectives::testing
