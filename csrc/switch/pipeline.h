// SwitchPipeline: the software switch without its sockets: a pure function of what it keeps and a packet. It admits jobs, takes
// their packets through the controls (visit.h), and says what is to be sent to whom. Nothing is allocated for a packet.
// Not thread-safe. Used by the switch program, the bindings and tests; includes wire and base.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "switch/visit.h"

namespace collectives::aggregation {

/// What a job asks for.
struct Admission {
    uint32_t job = 0, incarnation = 0;
    std::vector<Source> workers; // by number; all different
    uint32_t slots = 0;
    int most_lanes = 0;                   // of its packets
    std::optional<wire::TagKey> key = {}; // of their tags; none: tags are off
};

/// What is to be sent because of a packet: at most one datagram, to one worker or to all.
struct Reply {
    size_t bytes = 0; // 0: nothing
    int worker = -1;  // -1: all workers of `job`
    const Job* job = nullptr;
    Verdict verdict = Verdict::none; // of the packet that caused it
};

/// The oldest epoch of a job that is not complete, for whoever asks why it does not go on.
struct Waiting {
    uint32_t job = 0, slot = 0, epoch = 0;
    int64_t begun_ns = 0;
    uint64_t missing = 0; // workers
};

class SwitchPipeline {
  public:
    explicit SwitchPipeline(int64_t pool_bytes = int64_t(64) << 20, Served served = {})
        : pool_bytes_(pool_bytes), served_(served) {}

    /// Takes the memory of the job's slots. A job that is known begins anew with the other incarnation. Errors, which say
    /// why: invalid_argument; unsupported where the pool does not have as much.
    Status admit(const Admission& admission);
    /// False: no such job.
    bool release(uint32_t job);

    /// `out` has room for wire::kMostPacketBytes. `door`: by which of the switch's sockets it came; kept with the worker.
    Reply process(const Source& from, const uint8_t* datagram, size_t bytes, int64_t now_ns, uint8_t* out,
                  int door = 0);

    /// By number; good until the next admit or release.
    std::vector<const Job*> jobs() const;
    const Counts& counters() const { return counters_; }
    uint64_t counter(Verdict verdict) const { return counters_[size_t(verdict)]; }
    /// One of each job that has any, the oldest first.
    std::vector<Waiting> waiting() const;

  private:
    struct Sender { // the key of `workers_`
        Source source;
        uint32_t job;
        bool operator==(const Sender&) const = default;
    };
    struct Hash {
        size_t operator()(const Sender& sender) const;
    };
    struct Admitted {
        Job* job;
        int worker;
    };
    void admit(Visit& visit, const Source& from); // the control; admit.cc
    Status check(const Admission& admission) const;

    const int64_t pool_bytes_;
    const Served served_;
    int64_t used_bytes_ = 0;
    std::unordered_map<uint32_t, std::unique_ptr<Job>> jobs_;
    std::unordered_map<Sender, Admitted, Hash> workers_;
    Counts counters_{};
};

} // namespace collectives::aggregation
