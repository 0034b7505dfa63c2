// Messenger: point-to-point messages of one process, for all its communicators and all its peers, over rings in shared
// memory. It matches sends to receives and moves bytes; it never waits. Deadlines, liveness and sleeping are its
// caller's. Used by the node and the communicators of the engine; includes transport/ring.h and base only.
// docs/messages.md tells what travels and why two processes cannot block each other.
//
// Threads: every function may be called from any thread. Completions run on whichever thread ends the operation, inside
// post_*, progress, fail_*, or forget_communicator, never with the messenger's lock held; they may post again. A
// completion that another thread is about to call may still run shortly after fail_* returns (its buffer is no longer
// touched): a Completion must live until it has been called.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/ring.h"

namespace collectives {

class Faults; // transport/faults.h

/// Told once, when the operation that it was posted with has ended.
class Completion {
  public:
    /// `source_rank`: of a receive, the rank that the message came from (-1 if it failed before that was known); of a
    /// send, the own rank.
    virtual void message_done(const Status& status, int source_rank) = 0;

  protected:
    ~Completion() = default;
};

struct MessengerConfig {
    int64_t eager_limit_bytes = 4096;         // longer messages announce themselves; less where a ring is small
    int64_t fragment_limit_bytes = 16 * 1024; // longest piece of a large message; at most an eighth of a ring, or 4 KiB
    CopyFunction copy_to_ring = nullptr;      // for fragments; null: memcpy
    CopyFunction copy_from_ring = nullptr;    // for fragments; null: memcpy
    /// A peer says that a send which had already ended (a small one) met a receive of another size: the engine should
    /// fail the communicator. Called without the lock.
    std::function<void(uint64_t communicator, const Status&)> on_late_error;
    Faults* faults = nullptr; // of the transport `faulty`: asked before and after each record
};

/// What the messenger needs to know of a communicator.
struct MessageGroup {
    uint64_t id = 0; // the same on all its ranks, never used again
    std::string name;
    int rank = 0;           // of this process
    std::vector<int> slots; // by rank: add_peer's slot, or Messenger::kNoPeer (this process, or not attached yet)
    std::vector<int> global_ranks; // by rank, for errors; empty: the same as the ranks
};

class Messenger {
  public:
    static constexpr int kNoPeer = -1;
    static constexpr int kAnyRank = -1; // the engine's kAnySource

    explicit Messenger(MessengerConfig config = {});
    ~Messenger(); // ends what is pending with `closed`
    Messenger(const Messenger&) = delete;
    Messenger& operator=(const Messenger&) = delete;

    /// A process that can be reached: `tx` is the ring to it, `rx` the one from it, both zeroed when new. `wake` rings
    /// its doorbell; it is called with the lock held after each publication, so it must be short and must not call the
    /// messenger. To lose no wake-up, it must start with an atomic read-modify-write (acq_rel) of a word that a sleeper
    /// also read-modify-writes before it calls progress() a last time. `name` appears in errors.
    Status add_peer(const RingMemory& tx, const RingMemory& rx, std::function<void()> wake, std::string name,
                    int* slot);

    /// Messages of a communicator that arrive before this are kept. Errors: invalid_argument.
    Status add_communicator(MessageGroup group);
    /// Fills in a slot that add_communicator was not given.
    void set_slot(uint64_t communicator, int rank, int slot);

    /// Starts a send of `bytes` to rank `destination`. Up to the eager limit it ends as soon as the ring has taken it,
    /// mostly before this returns; a longer one when the receiver has taken it. `data` must stay until then.
    void post_send(uint64_t communicator, int destination, uint32_t tag, const void* data, int64_t bytes,
                   Completion* completion);

    /// Starts a receive from rank `source` or kAnyRank (then the earliest-arrived message with the tag). The message
    /// must have exactly `bytes`: otherwise both sides end with `mismatch`.
    void post_recv(uint64_t communicator, int source, uint32_t tag, void* data, int64_t bytes, Completion* completion);

    /// Moves what can be moved without waiting. True: something moved. Returns at once when another thread is in it
    /// (that thread then looks once more before it leaves).
    bool progress();

    /// Operations or outgoing records that have not ended.
    bool anything_pending() const;

    /// Ends all operations of the communicator, and later ones at once, with `status`. Peers whose messages were under
    /// way are told; what still arrives is dropped.
    void fail_communicator(uint64_t communicator, const Status& status);

    /// The peer is gone: takes what its ring still holds, then ends everything that involves it (also receives from any
    /// source in groups with it) with `status`. Its rings and `wake` are not touched after this returns. Messages that
    /// arrived whole can still be received.
    void fail_peer(int slot, const Status& status);

    /// Ok, or why the peer failed (also set by the messenger itself when the peer's ring holds nonsense).
    Status peer_status(int slot) const;

    /// Sends of the communicator to other processes that their receivers have not taken yet.
    int64_t unsent(uint64_t communicator) const;

    /// The rank has closed the communicator, having sent all that it meant to: takes what its ring still holds; then
    /// receives from it that nothing came for, and later ones, end with `status` (from any source: when all others have).
    void peer_closed(uint64_t communicator, int rank, const Status& status);

    /// Drops all state of the communicator; what still runs ends with `closed`.
    void forget_communicator(uint64_t communicator);

    struct Impl; // messenger_state.h

  private:
    std::unique_ptr<Impl> impl_;
};

} // namespace collectives
