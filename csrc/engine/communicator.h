// Communicator: the engine's face. A group of ranks that run collectives and messages among themselves.
// Used by the bindings and by tests; everything below it is private to the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/call.h"
#include "base/status.h"
#include "engine/request.h"
#include "transport/bootstrap.h"

namespace collectives {

class Node; // this process (or, in tests, this thread) as its peers see it: transport/node.h

constexpr int kAnySource = -1;

struct CommunicatorConfig {
    int rank = 0;
    int world_size = 1;
    std::string name = "world";               // appears in errors
    int64_t timeout_ns = 1800ll * 1000000000; // of operations that give none
    std::vector<std::string> transports;      // allowed rows of the transport table; empty: all
    std::string interface;                    // of this process, for peers on other hosts; empty: the node decides
    std::string algorithm;                    // force this row of the algorithm table where it applies; empty: choose
    bool deterministic = false;
    int64_t staging_bytes = 0;        // 0: the node decides
    int64_t piece_bytes = 0;          // staged by a rank between two flags; 0: the default
    int64_t mapped_from_bytes = 0;    // from here ranks look for zero-copy; 0: the default
    int64_t pull_from_bytes = 0;      // from here blocks are pulled; 0: as measured, negative: never
    int64_t streaming_from_bytes = 0; // from here output is written past the caches; 0: the default
    std::vector<int> shown_ranks;     // names in errors: of a part of a group, its ranks in the whole; empty: its own
    std::vector<int> global_ranks;    // names in errors: this group's ranks in the job; empty: 0..world_size-1
};

class Communicator : public std::enable_shared_from_this<Communicator> {
  public:
    /// Joins the group; collective over the bootstrap. Errors: invalid_argument (rank, size, unknown transport or
    /// algorithm), timeout (names who is missing), peer_failed, mismatch (another library version), internal.
    static Status create(Node& node, const CommunicatorConfig& config, Bootstrap& bootstrap,
                         std::shared_ptr<Communicator>* out);
    virtual ~Communicator() = default;

    virtual int rank() const = 0;
    virtual int world_size() const = 0;
    virtual const CommunicatorConfig& config() const = 0;

    /// Checks a call's arguments on this rank alone: sizes, dtype and op, overlap, root. `run` and `start` do it too.
    virtual Status validate(const Call& call) const = 0;

    /// Runs a collective on the caller's thread and returns when its result is there. `timeout_ns` < 0: the default.
    virtual Status run(const Call& call, int64_t timeout_ns = -1) = 0;

    /// Starts a collective. The call's arrays of pointers and counts are copied; the data must stay until it ends.
    /// Never null: bad arguments and a failed communicator give a request that has already ended with the error.
    virtual RequestPtr start(const Call& call, int64_t timeout_ns = -1) = 0;

    /// Several collectives that end together: one request, in the given order, small ones moved in one exchange.
    virtual RequestPtr start_coalesced(const std::vector<Call>& calls, int64_t timeout_ns = -1) = 0;

    /// Messages. Ordered per (peer, tag) only. A send of up to a few KiB ends at once (buffered); a larger one when the
    /// receiver has taken it. The receiver's size must be the sender's. `source` may be kAnySource.
    virtual RequestPtr start_send(const void* data, int64_t bytes, int destination, uint32_t tag,
                                  int64_t timeout_ns = -1) = 0;
    virtual RequestPtr start_recv(void* data, int64_t bytes, int source, uint32_t tag, int64_t timeout_ns = -1) = 0;

    /// A new communicator of the ranks with the same colour, ordered by (key, rank); colour < 0: this rank gets none
    /// (*out is null). Collective over this communicator.
    virtual Status split(int color, int key, const std::string& name, std::shared_ptr<Communicator>* out) = 0;

    /// A new communicator without `exclude` (indices here). Called by the survivors only; this one may have failed.
    virtual Status shrink(const std::vector<int>& exclude, const std::string& name,
                          std::shared_ptr<Communicator>* out) = 0;

    /// The first failure, or ok. A failed communicator answers every call with it.
    virtual Status error() const = 0;

    /// Fails the communicator on this rank and, at their next wait, on its peers. Wakes every waiter. Any thread.
    virtual void abort(const std::string& reason) = 0;

    /// Ends it: waits (at most `timeout_ns`) for operations under way, then lets go of all memory. Idempotent.
    virtual Status close(int64_t timeout_ns) = 0;

    virtual void set_timeout(int64_t timeout_ns) = 0;

    /// Collectives issued so far (the number of the last one; 0 before the first).
    virtual uint64_t sequence() const = 0;

    /// One line on what this group runs on and why: transport, staging, what was measured. For the log.
    virtual std::string describe_group() const = 0;

    /// Lines on what would run for a call, one for each algorithm, for `collectives info --plan`. Buffers may be null.
    virtual std::string describe_plan(const Call& call) const = 0;

    /// Between hosts: times every algorithm on messages of up to `most_bytes`, chooses by that from now on, and keeps it for
    /// later groups of ranks that lie so, in *path (rank 0; empty where the node has no folder for it). Collective.
    /// Errors: unsupported within a host, where every call measures as it goes.
    virtual Status tune(int64_t most_bytes, std::string* path) = 0;
};

/// Called every few milliseconds in a blocking wait on a thread that asked for it; true means: stop waiting.
using InterruptCheck = bool (*)();
void set_interrupt_check(InterruptCheck check); // for the whole process; the bindings set it

} // namespace collectives
