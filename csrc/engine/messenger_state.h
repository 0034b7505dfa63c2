// The messenger's inside: operations, arrivals, peers, communicators, and the functions over them. Private to the
// messenger_*.cc. All of it is guarded by Impl::mutex_, except where a comment says otherwise.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/messenger.h"
#include "engine/messenger_match.h"

namespace collectives::messages {

inline void plain_copy(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, size_t(bytes)); }

struct Peer;
struct Group;

enum class State : uint8_t {
    free,
    queued_send,    // in peer->queued: nothing of it is in the ring
    awaiting_send,  // announced; waits for clear_to_send (to this process itself: for the receive)
    streaming_send, // in peer->streaming: fragments go out
    posted_recv,    // in group->posted: no message yet
    active_recv,    // matched a large message; fragments come in
    control,        // in peer->control: `header` is to be sent
};

/// What a caller posted.
struct Posting {
    Group* group = nullptr; // null: control
    Peer* peer = nullptr;   // null: any source
    int rank = -1;          // the other side; of a receive from any source, -1 until it is known
    uint32_t tag = 0;
    unsigned char* data = nullptr;
    int64_t bytes = 0;
    Completion* completion = nullptr;
};

/// An operation under way, or a control record that waits for room. Pooled; known to peers by id.
struct Operation : Posting {
    Hook<Operation> hook; // of the one queue that `state` names
    State state = State::free;
    uint32_t index = 0;      // in Impl::operations_
    uint32_t generation = 1; // how often this place was used: tells a late id from a live one
    int64_t moved_bytes = 0;
    uint64_t order = 0;           // of posting, to choose between a named and an any-source receive
    uint64_t remote_id = 0;       // the peer's id of the same message; 0 before it is known
    Operation* partner = nullptr; // to this process itself: the receive of a streaming_send
    RecordHeader header;

    uint64_t id() const { return uint64_t(generation) << 32 | index; }
};

/// A message that came before its receive: whole (its bytes follow this struct) or announced.
struct Arrival {
    Hook<Arrival> by_source;
    Hook<Arrival> by_tag;
    Peer* peer = nullptr;
    int source = 0;
    uint32_t tag = 0;
    bool announced = false;
    int64_t bytes = 0;
    uint64_t message = 0; // the sender's id of an announced message

    unsigned char* data() { return reinterpret_cast<unsigned char*>(this + 1); }
    static Arrival* make(int64_t payload_bytes) {
        return new (::operator new(sizeof(Arrival) + size_t(payload_bytes))) Arrival;
    }
    static void destroy(Arrival* arrival) {
        arrival->~Arrival();
        ::operator delete(arrival);
    }
};

using OperationQueue = Queue<Operation, &Operation::hook>;

struct Peer {
    int slot = -1;
    bool is_self = false;
    bool needs_wake = false; // something was published to it since its doorbell was last rung
    Status failed;
    RingReader rx;
    RingWriter tx;
    int64_t eager_limit_bytes = 0;
    int64_t fragment_limit_bytes = 0;
    int64_t reserve_bytes = 0; // room that fragments leave for small messages
    OperationQueue control;    // goes out first
    OperationQueue queued;     // then sends that are not announced yet, in order
    OperationQueue streaming;  // then fragments, in turn
    std::function<void()> wake;
    std::string name;

    bool live() const { return failed.ok() && !is_self; }
};

inline uint64_t source_key(int source, uint32_t tag) { return uint64_t(source + 1) << 32 | tag; }
inline uint64_t any_key(uint32_t tag) { return tag; }

struct Group {
    MessageGroup info;
    bool registered = false; // false: only arrivals so far
    Status failed;
    int64_t unsent = 0;                         // sends under way to other processes
    std::vector<std::pair<int, Status>> closed; // ranks that have closed it, each once
    KeyedQueue<Operation, &Operation::hook> posted;
    size_t any_posted = 0; // how many of them take any source
    KeyedQueue<Arrival, &Arrival::by_source> arrivals;
    KeyedQueue<Arrival, &Arrival::by_tag> arrivals_by_tag;

    ~Group() { drop_arrivals(); }

    int size() const { return int(info.slots.size()); }
    bool has_peer(int slot) const;
    std::string rank_name(int rank) const;
    Status closed_by(int source) const; // ok: something can still come
    Operation* match(int source, uint32_t tag) const;
    Arrival* find_arrival(int source, uint32_t tag) const;
    void add_arrival(Arrival* arrival);
    void remove_arrival(Arrival* arrival); // and frees it
    void drop_arrivals();
};

/// What is to be called once the lock is released.
class Deferred {
  public:
    Deferred() {}
    ~Deferred() {}
    Deferred(const Deferred&) = delete;
    Deferred& operator=(const Deferred&) = delete;

    void add(Completion* completion, const Status& status, int source);
    void add_late_error(uint64_t communicator, const Status& status) { late_.emplace_back(communicator, status); }
    bool full() const { return count_ == kPlaces; } // of places that cost no allocation
    void run(const MessengerConfig& config);

  private:
    struct Done {
        Completion* completion;
        Status status;
        int source;
    };
    static constexpr int kPlaces = 24;
    int count_ = 0;
    union {
        Done places_[kPlaces]; // made one by one, so that an idle pass does not pay for them
    };
    std::vector<Done> more_;
    std::vector<std::pair<uint64_t, Status>> late_;
};

} // namespace collectives::messages

namespace collectives {

struct Messenger::Impl {
    using Peer = messages::Peer;
    using Posting = messages::Posting;
    using Group = messages::Group;
    using Operation = messages::Operation;
    using Arrival = messages::Arrival;
    using State = messages::State;
    using Deferred = messages::Deferred;

    explicit Impl(MessengerConfig config);

    // messenger.cc
    void lock();
    void unlock() { mutex_.unlock(); }
    Group* find_group(uint64_t id);
    bool was_forgotten(uint64_t id) const;
    Operation* allocate(State state);
    Operation* adopt(const Posting& posting, State state);
    void release(Operation* op);
    void end(Operation* op, const Status& status, Deferred& done);

    // messenger_matching.cc
    Status resolve(uint64_t id, int rank, int64_t bytes, bool is_send, Posting* posting);
    void send(const Posting& posting, Deferred& done);
    void receive(const Posting& posting, Deferred& done);
    void take_arrival(const Posting& posting, Arrival* arrival, Deferred& done);
    void activate(Operation* recv, Peer& peer);
    Status failed_member(const Group& group) const;
    void send_to_self(const Posting& posting, Deferred& done);
    void start_self_transfer(Operation* send, Operation* recv, Deferred& done);
    bool flush_self(Deferred& done);
    void copy_to_self(Operation* send, int64_t piece_bytes, Deferred& done);

    // messenger_failure.cc
    void tell_mismatch(const Group& group, Peer& peer, uint32_t tag, uint64_t message, int64_t sent, int64_t expected);
    Status mismatch(const Group& group, int from, int to, uint32_t tag, int64_t sent, int64_t expected) const;
    void fail_group(Group& group, const Status& status, Deferred& done);
    void fail_peer(Peer& peer, const Status& status, Deferred& done);
    void end_receives_from_closed(Group& group, Deferred& done);
    void check_early_arrivals(Group& group, Deferred& done);

    // messenger_incoming.cc
    bool pass(Deferred& done);
    bool drain(Peer& peer, Deferred& done);
    Status handle(Peer& peer, const RecordHeader& header, Deferred& done);
    Status on_message(Peer& peer, const RecordHeader& header, Deferred& done);
    void keep_arrival(Peer& peer, Group& group, const RecordHeader& header);
    Status on_clear_to_send(Peer& peer, const RecordHeader& header);
    Status on_fragment(Peer& peer, const RecordHeader& header, Deferred& done);
    Status on_cancel(Peer& peer, const RecordHeader& header, Deferred& done);
    Status on_refuse(Peer& peer, const RecordHeader& header, Deferred& done);
    Status on_mismatch(Peer& peer, const RecordHeader& header, Deferred& done);
    bool source_is_valid(Group& group, const Peer& peer, uint32_t source);
    Status find_operation(const Peer& peer, uint64_t id, Operation** op);

    // messenger_outgoing.cc
    bool flush(Peer& peer, Deferred& done);
    bool flush_queues(Peer& peer, Deferred& done, bool* blocked);
    bool write(Peer& peer, const RecordHeader& header, const void* payload, int64_t leave_free_bytes,
               CopyFunction copy);
    Operation* next_queued(Peer& peer);
    bool announce(Peer& peer, Operation* op, Deferred& done);
    bool push_message(Peer& peer, const Group& group, uint32_t tag, const void* data, int64_t bytes);
    bool push_fragment(Peer& peer, Operation* op, Deferred& done);
    void post_control(Peer& peer, const RecordHeader& header);
    void clear_to_send(Operation* recv);
    void ring_doorbell(Peer& peer);

    MessengerConfig config_;
    std::mutex mutex_;
    std::atomic<int> posters_{0};      // threads that wait for mutex_ to post: progress() makes way. No lock needed.
    std::atomic<bool> again_{false};   // somebody called progress() while another was in it. No lock needed.
    std::atomic<int64_t> pending_{0};  // operations in use; written under the lock, read by anyone
    std::deque<Operation> operations_; // by index; addresses stay
    std::vector<Operation*> free_;
    std::deque<Peer> peers_; // by slot; addresses stay
    size_t first_peer_ = 0;  // where the next pass starts, so that no peer is always last
    size_t failed_peers_ = 0;
    Peer self_;
    std::unordered_map<uint64_t, std::unique_ptr<Group>> groups_;
    Group* last_group_ = nullptr;     // the last one found: most calls are for it again
    std::vector<uint64_t> forgotten_; // the latest ids of forget_communicator: what still arrives for them is dropped
    size_t next_forgotten_ = 0;
    uint64_t order_ = 0;
};

} // namespace collectives
