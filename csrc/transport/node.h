// Node: this process as its peers see it: one shared segment (flags and staging), one shared heap (collectives.empty),
// and the table of peers it is attached to. One a process; tests make one a rank-thread with the `inproc` transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace collectives {

struct FaultPlan; // transport/faults.h

struct NodeConfig {
    std::string host;                      // for errors; empty: gethostname
    int64_t segment_bytes = 4ll << 20;     // flags, queues and staging, all groups together
    int64_t heap_bytes = 0;                // address space for shared tensors; 0: the size of memory
    int64_t spin_ns = 200000;              // how long a blocking call spins before it sleeps
    std::string secret;                    // shared by the job; proves that a process belongs to it
    std::string interface;                 // peers on other hosts reach this one by it: name or address; empty: chosen
    std::string towards;                   // by the route to this name or address, where the job meets
    int streams = 1;                       // data connections to each peer on another host
    std::string link_profiles = "measure"; // measure (when the first group between hosts forms) | assume
    std::string profile_folder;            // where `tune` keeps what it measured; empty: nowhere
    std::string island;                    // for tests: nodes of different islands do not reach each other by memory
    std::string streaming_stores = "auto"; // auto | on | off
    std::shared_ptr<const FaultPlan> faults; // transport `faulty`: what goes wrong; null: nothing
};

class Node {
  public:
    /// The node of this process (shm, or faulty over it), made on first use with `config`; later calls ignore it.
    static Status process(const NodeConfig& config, Node** out);
    /// A node among threads of this process (inproc, or faulty with a plan), for tests and simulation.
    static std::unique_ptr<Node> inproc(const NodeConfig& config);
    virtual ~Node() = default;

    /// Memory that peers can reach, page-aligned and zeroed. Null when the heap is full. `free` takes what it gave.
    virtual void* allocate(size_t bytes) = 0;
    virtual void deallocate(void* data) = 0;
    virtual bool owns(const void* data, size_t bytes) const = 0;

    /// Bytes of the segment in use, and of the shared heap; for `collectives info` and leak tests.
    virtual int64_t segment_used_bytes() const = 0;
    virtual int64_t heap_used_bytes() const = 0;
    virtual int64_t heap_bytes() const = 0; // all of it

    /// Stops the progress thread and tells peers that this process leaves. Called at interpreter exit. Idempotent.
    virtual void shutdown() = 0;
};

/// True in a child made by fork() after the process got its node: the library must not be used there.
bool in_forked_child();

} // namespace collectives
