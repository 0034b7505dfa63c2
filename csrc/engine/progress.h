// ProgressEngine: the one progress thread of a node, the messenger that all its communicators share, and the ways to wait.
// Asynchronous work advances in passes: over the communicators with something queued, then over the messages. Whoever
// waits for a request runs the passes itself while the thread stands aside. Private to the engine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <sched.h>

#include "base/pause.h"
#include "engine/messenger.h"
#include "engine/wire_group.h"
#include "transport/local_node.h"

namespace collectives {

class CommunicatorImpl;
class CollectiveRequest;

/// A collective that ended in a pass, to be completed once no lock is held.
struct EndedCollective {
    std::shared_ptr<CollectiveRequest> request;
    Status status;
};

/// What an attempt to go on saw. `moved`: a step forward was made, though the end is not reached.
enum class Look { nothing, moved, done };

/// What the first group of a process measured; see tuning.cc.
struct Tuning {
    bool known = false;
    bool stage_streaming = false;
};

class ProgressEngine {
  public:
    /// The engine of a node, made on first use. It ends with the node.
    static ProgressEngine& of(LocalNode& node);
    explicit ProgressEngine(LocalNode& node);
    ~ProgressEngine();

    Messenger& messenger() { return messenger_; }
    /// The groups that span hosts; made, with the mesh, on the first call. Errors: see TcpMesh::create.
    Status open_hub(const std::string& interface, WireHub** out);

    /// The messenger's slot of a peer (kNoPeer for this node itself).
    Status slot_of(PeerProcess* peer, int* slot);
    Status slot_of(TcpLink* link, int* slot);

    /// A communicator has asynchronous work: from now on it is looked at in every pass, until a pass finds it idle.
    void activate(const std::shared_ptr<CommunicatorImpl>& communicator);

    /// One pass over everything, without waiting. True when something moved.
    bool pass();

    /// While one lives, the progress thread stands aside: its owner runs the passes.
    class Helping {
      public:
        explicit Helping(ProgressEngine& engine);
        ~Helping();
        Helping(const Helping&) = delete;

      private:
        ProgressEngine& engine_;
    };

    /// Spins while `attempt` sees nothing, yields a little where ranks outnumber cores, then sleeps on the node's bell in
    /// slices; starts over whenever something moved. Returns true when attempt() was done, false when check() (called
    /// at each slice) said stop.
    /// `links`: what is waited for may come over them.
    template <class Attempt, class Check> bool wait(Attempt attempt, Check check, int64_t spin_ns, bool links);
    template <class Attempt, class Check> bool wait(Attempt attempt, Check check) {
        return wait(attempt, check, node_.config().spin_ns, open_hub_.load(std::memory_order_relaxed) != nullptr);
    }
    int64_t spin_ns() const { return node_.config().spin_ns; }

    /// Routes what the messenger says about a communicator to it. `id`: its messages' number.
    void introduce(uint64_t id, const std::weak_ptr<CommunicatorImpl>& communicator);
    void forget(uint64_t id);

    /// An error when a process is known to be dead that is rank `r` of the job in a group here, for an r of the given.
    Status death_among(const std::vector<int>& global_ranks);

    Tuning tuning();
    void set_tuning(const Tuning& tuning);
    /// The profile of the first group between hosts, as text; empty before.
    std::string links();
    void set_links(const std::string& text);

    /// Wakes this process's own sleepers (something was queued or completed here).
    void ring_own() { LocalNode::ring(node_.bell()); }

    void stop();

    /// Fails the messages of peers that ended since the last look, and looks around every active communicator.
    void look_around();
    void look_at_peers();

    /// A group of this many ranks lives on this host: beyond the number of cores, waits give the core away at once.
    void set_local_ranks(int ranks);

    /// Moves frames of the links, unless another thread does. True: something moved.
    bool pass_links();

    /// A message was posted: the thread must run until it has ended.
    void want_messages();

  private:
    template <class Attempt> Look spin(Attempt& attempt, bool crowded, bool links, int64_t spin_ns);
    template <class Attempt> Look sleep(Attempt& attempt);
    MessengerConfig messenger_config();
    void late_error(uint64_t id, const Status& status);
    void thread_main();
    void start_thread();
    bool has_work();

    LocalNode& node_;
    Messenger messenger_;
    std::unique_ptr<WireHub> hub_;
    std::atomic<WireHub*> open_hub_{nullptr};
    std::atomic<bool> crowded_{false};
    std::mutex mutex_; // guards active_, slots_, buried_, thread_, stopping_
    std::condition_variable wanted_;
    std::vector<std::shared_ptr<CommunicatorImpl>> active_;
    std::map<PeerProcess*, int> slots_;
    std::map<PeerProcess*, bool> buried_;
    std::map<TcpLink*, int> link_slots_; // negative: less one, of a link that is lost
    std::mutex pass_mutex_;              // one pass at a time; guards pass_list_
    std::vector<std::shared_ptr<CommunicatorImpl>> pass_list_;
    std::atomic<int> helpers_{0};
    bool stopping_ = false;
    Tuning tuning_;
    std::string links_;
    std::map<uint64_t, std::weak_ptr<CommunicatorImpl>> known_; // by the messages' number
    std::thread thread_;
};

constexpr int64_t kThreadSpinNs = 20 * kMicrosecond; // of the progress thread: the core belongs to the computation
constexpr int64_t kSpinAloneNs = 10 * kMicrosecond;  // of a spin before it begins to offer the core
constexpr int kYields = 64; // where ranks outnumber cores: the peer that is waited for may only need this core
constexpr int64_t kSliceNs = 20 * kMillisecond; // longest sleep between two looks at deadlines and signals

template <class Attempt> Look ProgressEngine::spin(Attempt& attempt, bool crowded, bool links, int64_t spin_ns) {
    // Where links are looked at, an attempt is a system call, and an answer is microseconds away at best: time for another
    // process to do what it is waited for, be it a rank or the kernel's own thread.
    const int attempts = crowded ? 8 : links ? 2 : 64;
    const int64_t alone_ns = links ? 0 : kSpinAloneNs;
    for (int64_t start = 0;;) {
        for (int i = 0; i < attempts; ++i) {
            if (Look look = attempt(); look != Look::nothing)
                return look;
            cpu_pause();
        }
        int64_t now = monotonic_ns();
        if (start == 0)
            start = now;
        if (crowded || now - start >= spin_ns)
            break;
        if (now - start >= alone_ns)
            sched_yield(); // the peer may be waiting for this very core
    }
    for (int i = 0; crowded && i < kYields; ++i) {
        sched_yield();
        if (Look look = attempt(); look != Look::nothing)
            return look;
    }
    return Look::nothing;
}

template <class Attempt> Look ProgressEngine::sleep(Attempt& attempt) {
    SegmentHeader* header = node_.header();
    header->sleepers.fetch_add(1, std::memory_order_seq_cst);
    uint32_t bell = header->bell.load(std::memory_order_seq_cst);
    TcpMesh* mesh = node_.mesh();
    if (mesh != nullptr)
        header->pollers.fetch_add(1, std::memory_order_seq_cst);
    Look look = attempt();
    if (look == Look::nothing && mesh == nullptr)
        futex_wait(&header->bell, bell, kSliceNs);
    else if (look == Look::nothing && header->bell.load(std::memory_order_seq_cst) == bell)
        mesh->sleep(kSliceNs);
    if (mesh != nullptr)
        header->pollers.fetch_sub(1, std::memory_order_seq_cst);
    header->sleepers.fetch_sub(1, std::memory_order_seq_cst);
    return look == Look::nothing ? attempt() : look;
}

template <class Attempt, class Check>
bool ProgressEngine::wait(Attempt attempt, Check check, int64_t spin_ns, bool links) {
    const bool crowded = crowded_.load(std::memory_order_relaxed);
    int64_t looked = 0;
    for (bool spins = true;;) {
        Look look = spins ? spin(attempt, crowded, links, spin_ns) : Look::nothing;
        if (look == Look::nothing)
            look = sleep(attempt);
        if (look == Look::done)
            return true;
        spins = look == Look::moved; // the next phase is as near as the first one was
        int64_t now = monotonic_ns();
        if (spins && looked == 0)
            looked = now;
        if (now - looked >= (spins ? kSliceNs : kMillisecond)) { // not at every ring: looking costs system calls
            looked = now;
            if (check())
                return false;
        }
    }
}

} // namespace collectives
