// LocalNode: the implementation of Node behind both memory transports. `shm` maps memfd segments of other processes,
// `inproc` borrows the memory of other nodes of this process; above this file nothing can tell them apart.
// Included by transport and engine.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/futex.h"
#include "transport/arena.h"
#include "transport/faults.h"
#include "transport/hello.h"
#include "transport/node.h"
#include "transport/segment.h"
#include "transport/tcp_mesh.h"

namespace collectives {

/// A mapped range that lives as long as somebody holds it.
class Mapping {
  public:
    Mapping(void* base, int64_t bytes) : base_(static_cast<uint8_t*>(base)), bytes_(bytes) {}
    ~Mapping();
    Mapping(const Mapping&) = delete;
    uint8_t* base() const { return base_; }
    int64_t bytes() const { return bytes_; }

  private:
    uint8_t* base_;
    int64_t bytes_;
};
using MappingPtr = std::shared_ptr<Mapping>;

/// Shared memory that this node owns: mapped, and for shm with the descriptor that is passed to peers.
struct SharedMemory {
    MappingPtr mapping;
    int fd = -1;
    /// `sharable`: a memfd. `name` shows in /proc/PID/maps. Pages are taken when touched.
    static Status create(const char* name, int64_t bytes, bool sharable, SharedMemory* out);
};

struct RingRange { // a message ring inside a segment
    int64_t offset = -1;
    int64_t bytes = 0;
};

/// What wakes the sleepers of a process: the count in its header, for those on the futex, and its eventfd, for those that
/// wait for sockets, too.
struct Bell {
    SegmentHeader* header = nullptr;
    int fd = -1;
};

/// A process (or inproc node) that this node can read and write.
struct PeerProcess {
    Uuid uuid{};
    int64_t pid = 0;
    bool inproc = false; // lives in this process
    std::string host;
    MappingPtr segment, heap;
    RingRange tx, rx;              // messages to it (in my segment) and from it (in its segment)
    int life_fd = -1;              // pidfd or socket; readable when the process has ended
    int bell_fd = -1;              // its eventfd
    std::atomic<bool> dead{false}; // ended without saying good-bye
    SegmentHeader* header() const { return reinterpret_cast<SegmentHeader*>(segment->base()); }
    Bell bell() const { return {header(), bell_fd}; }
};

class LocalNode final : public Node {
  public:
    static Status create(const NodeConfig& config, bool sharable, std::unique_ptr<LocalNode>* out);
    ~LocalNode() override;

    void* allocate(size_t bytes) override;
    void deallocate(void* data) override;
    bool owns(const void* data, size_t bytes) const override;
    int64_t segment_used_bytes() const override { return arena_->used_bytes(); }
    int64_t heap_used_bytes() const override { return heap_arena_->used_bytes(); }
    int64_t heap_bytes() const override { return config_.heap_bytes; }
    void shutdown() override;

    /// What this node tells the others of a new group.
    const Hello& hello() const { return hello_; }
    /// Makes sure that every process in `hellos` is attached. On return peers[i] belongs to hellos[i] (null: this node).
    Status attach_all(const std::vector<Hello>& hellos, int64_t deadline_ns, std::vector<PeerProcess*>* peers);

    const NodeConfig& config() const { return config_; }
    SegmentHeader* header() const { return reinterpret_cast<SegmentHeader*>(segment_.mapping->base()); }
    uint8_t* segment_base() const { return segment_.mapping->base(); }
    uint8_t* heap_base() const { return heap_.mapping->base(); }
    int64_t heap_offset(const void* data) const { return static_cast<const uint8_t*>(data) - heap_base(); }
    Arena& arena() { return *arena_; }

    /// Gives ranges of the segment back once `unused()` says so: peers may still look at them. Asked at each call of
    /// collect_garbage().
    void give_later(std::vector<int64_t> offsets, std::function<bool()> unused);
    void collect_garbage();

    /// Peers may still read and write [data, data + bytes) of the heap, for an operation that failed here, until `unused()`
    /// says that they do not: what is freed of it meanwhile is given back only then.
    void hold(const void* data, int64_t bytes, std::function<bool()> unused);

    /// Copies `bytes` at `address` of the peer's private memory; false when the system refuses (seccomp, yama, a peer
    /// that ended). For inproc peers a plain copy.
    static bool pull(const PeerProcess& peer, void* dst, uint64_t address, int64_t bytes);
    /// Whether pull() works, tried on the peer's header.
    static bool can_pull(const PeerProcess& peer);

    Bell bell() const { return {header(), bell_fd_}; }
    /// Wakes the threads that sleep on a bell, if there are any. One load when nobody sleeps. The caller's last store must
    /// have been sequentially consistent.
    static void ring(const Bell& bell) {
        if (bell.header->sleepers.load(std::memory_order_seq_cst) != 0)
            ring_always(bell);
    }
    static void ring_always(const Bell& bell);

    /// The links to processes on other hosts; made, with its listener, on the first call. `interface`: comes before the
    /// node's own; empty: none was asked for. Errors: see TcpMesh::create; invalid_argument when it listens elsewhere.
    Status open_mesh(const std::string& interface, TcpMesh** out);
    /// The same, or null where nobody has needed it yet. Any thread.
    TcpMesh* mesh() const { return open_mesh_.load(std::memory_order_acquire); }

    /// In a child made by fork(): closes every descriptor, touches nothing else.
    void give_up_in_forked_child();
    /// This node vanishes for its peers as a killed process would: for `inproc` they see it dead, for `shm` it is killed.
    void simulate_death();
    /// What goes wrong on purpose; null for every transport but `faulty`.
    Faults* faults() const { return faults_.get(); }
    /// The row of the transport table that this node is of.
    const char* transport() const { return faults_ != nullptr ? "faulty" : sharable_ ? "shm" : "inproc"; }
    static std::string death_text(const PeerProcess& peer);

    /// The engine hangs its progress thread here, so that it ends before the node does.
    std::shared_ptr<void> engine;
    std::mutex engine_mutex;
    void (*stop_engine)(void*) = nullptr;

  private:
    LocalNode() = default;
    PeerProcess* find(const Uuid& uuid);
    PeerProcess* add_peer(std::unique_ptr<PeerProcess> peer);
    RingRange ring_for(const Uuid& uuid, int n_peers);
    Status attach_inproc(const Hello& hello, int n_peers);
    Status connect_shm(const Hello& hello, int n_peers, int64_t deadline_ns);
    Status accept_shm(int n_peers, int64_t deadline_ns);
    Status finish_handshake(int socket, const Uuid& uuid, const std::string& host, int64_t deadline_ns, int n_peers);
    void watch();
    void wake_watcher();
    void close_descriptors();

    NodeConfig config_;
    bool sharable_ = false;
    bool died_ = false; // simulate_death() was called; guarded by the table of inproc nodes
    std::unique_ptr<Faults> faults_;
    Hello hello_;
    std::unique_ptr<TcpMesh> mesh_;
    std::atomic<TcpMesh*> open_mesh_{nullptr};
    SharedMemory segment_, heap_;
    std::unique_ptr<Arena> arena_, heap_arena_;
    int listener_ = -1;
    int bell_fd_ = -1;
    int watch_event_ = -1;
    std::thread watcher_;
    std::atomic<bool> stopping_{false};
    std::mutex attach_mutex_;  // one attach_all at a time
    mutable std::mutex mutex_; // guards the maps
    std::map<Uuid, std::unique_ptr<PeerProcess>> peers_;
    std::map<Uuid, RingRange> rings_;
    struct Garbage {
        std::vector<int64_t> offsets;
        std::function<bool()> unused;
    };
    std::vector<Garbage> garbage_;
    struct Hold {
        int64_t begin, end; // offsets in the heap
        std::function<bool()> unused;
    };
    std::vector<Hold> holds_;
    std::vector<void*> held_; // freed while a hold was on it
    std::atomic<bool> holds_any_{false};
    void release_held();
    void give_back(void* data);
};

} // namespace collectives
