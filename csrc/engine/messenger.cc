// The messenger's calls: peers and communicators, posting and matching, and all the ways to fail.
#include "engine/messenger.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "engine/messenger_state.h"

namespace collectives {

using namespace messages;

namespace {

constexpr size_t kForgottenIds = 1024;
constexpr int64_t kSelfInlineBytes = 64 * 1024; // to this process itself: copied in the call that matches

void plain_copy(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, size_t(bytes)); }

int64_t whole_cells(int64_t bytes) { return bytes / kCellBytes * kCellBytes; }

} // namespace

// ---- groups and what is deferred ----

namespace messages {

bool Group::has_peer(int slot) const {
    return std::find(info.slots.begin(), info.slots.end(), slot) != info.slots.end();
}

std::string Group::rank_name(int rank) const {
    std::string name = "rank " + std::to_string(rank);
    if (size_t(rank) < info.global_ranks.size() && info.global_ranks[size_t(rank)] != rank)
        name += " (global rank " + std::to_string(info.global_ranks[size_t(rank)]) + ")";
    return name;
}

/// The receive that a message from `source` belongs to: the one posted first.
Operation* Group::match(int source, uint32_t tag) const {
    Operation* named = posted.first(source_key(source, tag));
    Operation* any = any_posted > 0 ? posted.first(any_key(tag)) : nullptr;
    if (named == nullptr || any == nullptr)
        return named ? named : any;
    return named->order < any->order ? named : any;
}

Arrival* Group::find_arrival(int source, uint32_t tag) const {
    return source < 0 ? arrivals_by_tag.first(any_key(tag)) : arrivals.first(source_key(source, tag));
}

void Group::add_arrival(Arrival* arrival) {
    arrivals.push_back(arrival, source_key(arrival->source, arrival->tag));
    arrivals_by_tag.push_back(arrival, any_key(arrival->tag));
}

void Group::remove_arrival(Arrival* arrival) {
    arrivals.erase(arrival);
    arrivals_by_tag.erase(arrival);
    Arrival::destroy(arrival);
}

void Group::drop_arrivals() {
    arrivals.for_each([this](Arrival* arrival) { remove_arrival(arrival); });
}

void Deferred::add(Completion* completion, const Status& status, int source) {
    if (completion == nullptr)
        return;
    if (count_ < kPlaces)
        new (&places_[count_++]) Done{completion, status, source};
    else
        more_.push_back(Done{completion, status, source});
}

void Deferred::run(const MessengerConfig& config) {
    for (int i = 0; i < count_; ++i) {
        places_[i].completion->message_done(places_[i].status, places_[i].source);
        places_[i].~Done();
    }
    count_ = 0;
    for (const Done& done : more_) done.completion->message_done(done.status, done.source);
    for (const auto& [communicator, status] : late_) {
        if (config.on_late_error)
            config.on_late_error(communicator, status);
    }
}

} // namespace messages

// ---- locking and the pool ----

Messenger::Impl::Impl(MessengerConfig config) : config_(std::move(config)) {
    if (config_.copy_to_ring == nullptr)
        config_.copy_to_ring = plain_copy;
    if (config_.copy_from_ring == nullptr)
        config_.copy_from_ring = plain_copy;
    self_.is_self = true;
    self_.name = "itself";
}

/// For everything but progress(), which makes way for those that wait here.
void Messenger::Impl::lock() {
    for (int attempt = 0; attempt < 64; ++attempt) {
        if (mutex_.try_lock())
            return;
    }
    posters_.fetch_add(1);
    mutex_.lock();
    posters_.fetch_sub(1);
}

Messenger::Impl::Group* Messenger::Impl::find_group(uint64_t id) {
    if (last_group_ != nullptr && last_group_->info.id == id)
        return last_group_;
    const auto found = groups_.find(id);
    if (found == groups_.end())
        return nullptr;
    last_group_ = found->second.get();
    return last_group_;
}

bool Messenger::Impl::was_forgotten(uint64_t id) const {
    return std::find(forgotten_.begin(), forgotten_.end(), id) != forgotten_.end();
}

Operation* Messenger::Impl::allocate(State state) {
    if (free_.empty()) {
        operations_.emplace_back();
        operations_.back().index = uint32_t(operations_.size() - 1);
        free_.push_back(&operations_.back());
    }
    Operation* op = free_.back();
    free_.pop_back();
    op->state = state;
    op->moved_bytes = 0;
    op->remote_id = 0;
    op->partner = nullptr;
    pending_.store(pending_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    return op;
}

Operation* Messenger::Impl::adopt(const Posting& posting, State state) {
    Operation* op = allocate(state);
    static_cast<Posting&>(*op) = posting;
    op->order = ++order_;
    return op;
}

void Messenger::Impl::release(Operation* op) {
    op->state = State::free;
    op->group = nullptr;
    op->peer = nullptr;
    ++op->generation;
    free_.push_back(op);
    pending_.store(pending_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
}

/// Takes the operation out of its queue, frees it, and has its completion called.
void Messenger::Impl::end(Operation* op, const Status& status, Deferred& done) {
    const bool is_recv = op->state == State::posted_recv || op->state == State::active_recv;
    switch (op->state) {
    case State::queued_send: op->peer->queued.erase(op); break;
    case State::streaming_send: op->peer->streaming.erase(op); break;
    case State::control: op->peer->control.erase(op); break;
    case State::posted_recv:
        op->group->posted.erase(op);
        op->group->any_posted -= op->peer == nullptr;
        break;
    case State::awaiting_send:
    case State::active_recv: break;
    case State::free: COLLECTIVES_CHECK(op->state != State::free);
    }
    if (op->state != State::control)
        done.add(op->completion, status, is_recv ? op->rank : op->group->info.rank);
    release(op);
}

// ---- posting ----

/// Finds what a post is about, or says why it cannot be.
Status Messenger::Impl::resolve(uint64_t id, int rank, int64_t bytes, bool is_send, Posting* posting) {
    Group* group = find_group(id);
    if (group == nullptr || !group->registered)
        return Status(Code::closed, "messages: communicator " + std::to_string(id) + " is not open in this process");
    if (!group->failed.ok())
        return group->failed;
    const char* what = is_send ? "send" : "recv";
    if (bytes < 0 || (posting->data == nullptr && bytes > 0))
        return Status(Code::invalid_argument, std::string(what) + " of " + std::to_string(bytes) + " bytes at a " +
                                                  (posting->data ? "valid" : "null") + " address");
    posting->group = group;
    if (!is_send && rank == kAnyRank)
        return Status();
    if (rank < 0 || rank >= group->size())
        return Status(Code::invalid_argument, std::string(what) + ": rank " + std::to_string(rank) +
                                                  " is not in communicator '" + group->info.name + "' of " +
                                                  std::to_string(group->size()));
    if (rank == group->info.rank) {
        posting->peer = &self_;
        return Status();
    }
    const int slot = group->info.slots[size_t(rank)];
    if (slot == kNoPeer)
        return Status(Code::internal, std::string(what) + ": " + group->rank_name(rank) + " of communicator '" +
                                          group->info.name + "' is not attached");
    posting->peer = &peers_[size_t(slot)];
    return Status();
}

void Messenger::Impl::send(const Posting& posting, Deferred& done) {
    Peer& peer = *posting.peer;
    if (peer.is_self)
        return send_to_self(posting, done);
    if (!peer.failed.ok())
        return done.add(posting.completion, peer.failed, posting.group->info.rank);
    const bool first = peer.control.empty() && peer.queued.empty();
    if (first && posting.bytes <= peer.eager_limit_bytes &&
        push_message(peer, *posting.group, posting.tag, posting.data, posting.bytes)) {
        done.add(posting.completion, Status(), posting.group->info.rank);
    } else {
        Operation* op = adopt(posting, State::queued_send);
        peer.queued.push_back(op);
        if (first && posting.bytes > peer.eager_limit_bytes)
            announce(peer, op, done);
    }
    ring_doorbell(peer);
}

void Messenger::Impl::send_to_self(const Posting& posting, Deferred& done) {
    Group& group = *posting.group;
    const int rank = group.info.rank;
    Operation* recv = group.match(rank, posting.tag);
    if (recv == nullptr) {
        const bool whole = posting.bytes <= config_.eager_limit_bytes;
        Arrival* arrival = Arrival::make(whole ? posting.bytes : 0);
        arrival->peer = &self_;
        arrival->source = rank;
        arrival->tag = posting.tag;
        arrival->announced = !whole;
        arrival->bytes = posting.bytes;
        if (whole) {
            if (posting.bytes > 0)
                std::memcpy(arrival->data(), posting.data, size_t(posting.bytes));
            done.add(posting.completion, Status(), rank);
        } else {
            arrival->message = adopt(posting, State::awaiting_send)->id();
        }
        return group.add_arrival(arrival);
    }
    recv->rank = rank;
    if (recv->bytes != posting.bytes) {
        const Status status = mismatch(group, rank, rank, posting.tag, posting.bytes, recv->bytes);
        end(recv, status, done);
        return done.add(posting.completion, status, rank);
    }
    activate(recv, self_);
    start_self_transfer(adopt(posting, State::awaiting_send), recv, done);
}

/// A posted receive has met its message, whose bytes are still to come.
void Messenger::Impl::activate(Operation* recv, Peer& peer) {
    recv->group->posted.erase(recv);
    recv->group->any_posted -= recv->peer == nullptr;
    recv->state = State::active_recv;
    recv->peer = &peer;
}

/// Both ends are this process: copies at once, or in pieces on later passes.
void Messenger::Impl::start_self_transfer(Operation* send, Operation* recv, Deferred& done) {
    recv->peer = &self_;
    recv->rank = recv->group->info.rank;
    send->partner = recv;
    send->state = State::streaming_send;
    self_.streaming.push_back(send);
    if (send->bytes <= kSelfInlineBytes)
        copy_to_self(send, send->bytes, done);
}

void Messenger::Impl::receive(const Posting& posting, Deferred& done) {
    Group& group = *posting.group;
    const int source = posting.peer == nullptr ? kAnyRank : posting.rank;
    if (Arrival* arrival = group.find_arrival(source, posting.tag))
        return take_arrival(posting, arrival, done);
    const Status failed = posting.peer ? posting.peer->failed : failed_member(group);
    if (!failed.ok())
        return done.add(posting.completion, failed, source);
    Operation* op = adopt(posting, State::posted_recv);
    group.any_posted += posting.peer == nullptr;
    group.posted.push_back(op, posting.peer ? source_key(source, posting.tag) : any_key(posting.tag));
}

void Messenger::Impl::take_arrival(const Posting& posting, Arrival* arrival, Deferred& done) {
    Group& group = *posting.group;
    Peer& peer = *arrival->peer;
    const int rank = arrival->source;
    Operation* own_send = nullptr;
    if (peer.is_self && arrival->announced)
        COLLECTIVES_CHECK(find_operation(self_, arrival->message, &own_send).ok() && own_send != nullptr);
    if (posting.bytes != arrival->bytes) {
        const Status status = mismatch(group, rank, group.info.rank, posting.tag, arrival->bytes, posting.bytes);
        if (own_send != nullptr)
            end(own_send, status, done);
        else if (peer.live())
            tell_mismatch(group, peer, posting.tag, arrival->message, arrival->bytes, posting.bytes);
        else if (peer.is_self)
            done.add_late_error(group.info.id, status);
        done.add(posting.completion, status, rank);
    } else if (!arrival->announced) {
        if (posting.bytes > 0)
            std::memcpy(posting.data, arrival->data(), size_t(posting.bytes));
        done.add(posting.completion, Status(), rank);
    } else if (own_send != nullptr) {
        start_self_transfer(own_send, adopt(posting, State::active_recv), done);
    } else {
        Operation* op = adopt(posting, State::active_recv);
        op->rank = rank;
        op->peer = &peer;
        op->remote_id = arrival->message;
        clear_to_send(op);
    }
    group.remove_arrival(arrival);
    ring_doorbell(peer);
}

void Messenger::Impl::tell_mismatch(const Group& group, Peer& peer, uint32_t tag, uint64_t message, int64_t sent,
                                    int64_t expected) {
    RecordHeader header;
    header.kind = RecordKind::mismatch;
    header.communicator = group.info.id;
    header.tag = tag;
    header.source = uint32_t(group.info.rank);
    header.message = message;
    header.total = uint64_t(sent);
    header.offset = uint64_t(expected);
    post_control(peer, header);
}

Status Messenger::Impl::mismatch(const Group& group, int from, int to, uint32_t tag, int64_t sent,
                                 int64_t expected) const {
    return Status(Code::mismatch, "message sizes differ: " + group.rank_name(from) + " sent " + std::to_string(sent) +
                                      " bytes to " + group.rank_name(to) + " with tag " + std::to_string(tag) +
                                      " in communicator '" + group.info.name + "', where the receive is of " +
                                      std::to_string(expected) + " bytes");
}

/// Why a receive from any source in this group cannot be waited for, if so.
Status Messenger::Impl::failed_member(const Group& group) const {
    if (failed_peers_ == 0)
        return Status();
    for (int slot : group.info.slots) {
        if (slot != kNoPeer && !peers_[size_t(slot)].failed.ok())
            return peers_[size_t(slot)].failed;
    }
    return Status();
}

// ---- failing ----

void Messenger::Impl::fail_group(Group& group, const Status& status, Deferred& done) {
    if (!group.failed.ok())
        return;
    group.failed = status;
    RecordHeader header;
    header.communicator = group.info.id;
    header.source = uint32_t(group.info.rank);
    header.total = uint64_t(status.code());
    const size_t count = operations_.size(); // those made below are control, of no group
    for (size_t i = 0; i < count; ++i) {
        Operation* op = &operations_[i];
        if (op->state == State::free || op->group != &group)
            continue;
        const State state = op->state;
        header.tag = op->tag;
        if (state == State::active_recv) {
            header.kind = RecordKind::refuse;
            header.message = op->remote_id;
            header.offset = 0;
            post_control(*op->peer, header);
        } else if (state == State::awaiting_send || state == State::streaming_send) {
            header.kind = RecordKind::cancel;
            header.message = op->id();
            header.offset = op->remote_id;
            post_control(*op->peer, header);
        }
        end(op, status, done);
    }
    header.kind = RecordKind::refuse;
    header.offset = 0;
    group.arrivals.for_each([&](Arrival* arrival) {
        header.message = arrival->message;
        header.tag = arrival->tag;
        if (arrival->announced)
            post_control(*arrival->peer, header);
        group.remove_arrival(arrival);
    });
    for (Peer& peer : peers_) ring_doorbell(peer);
}

void Messenger::Impl::fail_peer(Peer& peer, const Status& status, Deferred& done) {
    if (!peer.failed.ok())
        return;
    peer.failed = status;
    ++failed_peers_;
    for (Operation& op : operations_) {
        const bool any_with_peer =
            op.state == State::posted_recv && op.peer == nullptr && op.group->has_peer(peer.slot);
        if (op.state != State::free && (op.peer == &peer || any_with_peer))
            end(&op, status, done);
    }
    for (auto& [id, group] : groups_) {
        group->arrivals.for_each([&, g = group.get()](Arrival* arrival) {
            if (arrival->peer == &peer && arrival->announced)
                g->remove_arrival(arrival);
        });
    }
    peer.rx = RingReader();
    peer.tx = RingWriter();
    peer.wake = nullptr;
    peer.needs_wake = false;
}

/// What came before add_communicator could not be checked then.
void Messenger::Impl::check_early_arrivals(Group& group, Deferred& done) {
    std::vector<Peer*> liars;
    group.arrivals.for_each([&](Arrival* arrival) {
        if (source_is_valid(group, *arrival->peer, uint32_t(arrival->source)))
            return;
        liars.push_back(arrival->peer);
        group.remove_arrival(arrival);
    });
    for (Peer* peer : liars)
        fail_peer(*peer,
                  Status(Code::peer_failed, "peer " + peer->name + " sent a message in communicator '" +
                                                group.info.name + "' as a rank that it is not"),
                  done);
}

// ---- the public face ----

Messenger::Messenger(MessengerConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}

Messenger::~Messenger() {
    Deferred done;
    impl_->lock();
    for (auto& [id, group] : impl_->groups_)
        impl_->fail_group(*group, Status(Code::closed, "the messenger of this process was closed"), done);
    impl_->unlock();
    done.run(impl_->config_);
}

Status Messenger::add_peer(const RingMemory& tx, const RingMemory& rx, std::function<void()> wake, std::string name,
                           int* slot) {
    COLLECTIVES_RETURN_IF_ERROR(check_ring_memory(tx));
    COLLECTIVES_RETURN_IF_ERROR(check_ring_memory(rx));
    impl_->lock();
    Peer& peer = impl_->peers_.emplace_back();
    peer.slot = *slot = int(impl_->peers_.size() - 1);
    peer.tx = RingWriter(tx);
    peer.rx = RingReader(rx);
    const int64_t quarter = whole_cells(peer.tx.capacity_bytes() / 4);
    peer.eager_limit_bytes = std::min({impl_->config_.eager_limit_bytes, quarter, int64_t(4096)});
    peer.fragment_limit_bytes =
        std::max(kCellBytes, whole_cells(std::min(impl_->config_.fragment_limit_bytes, quarter)));
    peer.reserve_bytes = peer.eager_limit_bytes + 2 * kCellBytes;
    peer.wake = std::move(wake);
    peer.name = std::move(name);
    impl_->unlock();
    return Status();
}

Status Messenger::add_communicator(MessageGroup info) {
    const std::string where = "messages: communicator '" + info.name + "': ";
    if (info.rank < 0 || size_t(info.rank) >= info.slots.size())
        return Status(Code::invalid_argument,
                      where + "rank " + std::to_string(info.rank) + " of " + std::to_string(info.slots.size()));
    Deferred done;
    Status status;
    impl_->lock();
    auto& place = impl_->groups_[info.id];
    const int peers = int(impl_->peers_.size());
    if (std::any_of(info.slots.begin(), info.slots.end(), [&](int s) { return s < kNoPeer || s >= peers; }))
        status = Status(Code::invalid_argument, where + "a slot that add_peer never gave");
    else if (place != nullptr && place->registered)
        status = Status(Code::invalid_argument, where + "id " + std::to_string(info.id) + " is in use");
    if (place == nullptr)
        place = std::make_unique<Group>();
    if (status.ok()) {
        place->info = std::move(info);
        place->registered = true;
        impl_->check_early_arrivals(*place, done);
    } else if (!place->registered && place->arrivals.size() == 0) {
        impl_->last_group_ = nullptr;
        impl_->groups_.erase(info.id);
    }
    impl_->unlock();
    done.run(impl_->config_);
    return status;
}

void Messenger::set_slot(uint64_t communicator, int rank, int slot) {
    impl_->lock();
    Impl::Group* group = impl_->find_group(communicator);
    COLLECTIVES_CHECK(group != nullptr && rank >= 0 && rank < group->size());
    COLLECTIVES_CHECK(slot >= 0 && size_t(slot) < impl_->peers_.size());
    group->info.slots[size_t(rank)] = slot;
    impl_->unlock();
}

void Messenger::post_send(uint64_t communicator, int destination, uint32_t tag, const void* data, int64_t bytes,
                          Completion* completion) {
    Deferred done;
    Posting posting;
    posting.rank = destination;
    posting.tag = tag;
    posting.data = const_cast<unsigned char*>(static_cast<const unsigned char*>(data)); // only read
    posting.bytes = bytes;
    posting.completion = completion;
    impl_->lock();
    const Status status = impl_->resolve(communicator, destination, bytes, true, &posting);
    if (status.ok())
        impl_->send(posting, done);
    else
        done.add(completion, status, -1);
    impl_->unlock();
    done.run(impl_->config_);
}

void Messenger::post_recv(uint64_t communicator, int source, uint32_t tag, void* data, int64_t bytes,
                          Completion* completion) {
    Deferred done;
    Posting posting;
    posting.rank = source;
    posting.tag = tag;
    posting.data = static_cast<unsigned char*>(data);
    posting.bytes = bytes;
    posting.completion = completion;
    impl_->lock();
    const Status status = impl_->resolve(communicator, source, bytes, false, &posting);
    if (status.ok())
        impl_->receive(posting, done);
    else
        done.add(completion, status, source);
    impl_->unlock();
    done.run(impl_->config_);
}

bool Messenger::progress() {
    bool moved = false;
    // A thread that finds us inside relies on another look at what came since; a few are enough, its own call follows.
    for (int round = 0; round < 4; ++round) {
        if (impl_->posters_.load() > 0)
            return true; // make way; "true": call again before sleeping
        if (!impl_->mutex_.try_lock()) {
            impl_->again_.store(true);
            if (!impl_->mutex_.try_lock())
                return moved;
        }
        impl_->again_.store(false);
        Deferred done;
        moved |= impl_->pass(done);
        impl_->unlock();
        done.run(impl_->config_);
        if (!impl_->again_.load())
            break;
    }
    return moved;
}

bool Messenger::anything_pending() const { return impl_->pending_.load(std::memory_order_acquire) > 0; }

void Messenger::fail_communicator(uint64_t communicator, const Status& status) {
    COLLECTIVES_CHECK(!status.ok());
    Deferred done;
    impl_->lock();
    if (Impl::Group* group = impl_->find_group(communicator))
        impl_->fail_group(*group, status, done);
    impl_->unlock();
    done.run(impl_->config_);
}

void Messenger::fail_peer(int slot, const Status& status) {
    COLLECTIVES_CHECK(!status.ok());
    for (int64_t round = 0;; ++round) { // what it had published before it went still counts
        Deferred done;
        impl_->lock();
        COLLECTIVES_CHECK(slot >= 0 && size_t(slot) < impl_->peers_.size());
        Peer& peer = impl_->peers_[size_t(slot)];
        const bool within_a_ring = round <= peer.rx.capacity_bytes() / kCellBytes; // it may not be dead after all
        const bool more = within_a_ring && peer.live() && impl_->drain(peer, done);
        if (!more)
            impl_->fail_peer(peer, status, done);
        impl_->unlock();
        done.run(impl_->config_);
        if (!more)
            return;
    }
}

Status Messenger::peer_status(int slot) const {
    impl_->lock();
    COLLECTIVES_CHECK(slot >= 0 && size_t(slot) < impl_->peers_.size());
    Status status = impl_->peers_[size_t(slot)].failed;
    impl_->unlock();
    return status;
}

void Messenger::forget_communicator(uint64_t communicator) {
    Deferred done;
    impl_->lock();
    if (Impl::Group* group = impl_->find_group(communicator)) {
        impl_->fail_group(*group, Status(Code::closed, "communicator '" + group->info.name + "' was closed"), done);
        impl_->last_group_ = nullptr;
        impl_->groups_.erase(communicator);
        if (impl_->forgotten_.size() < kForgottenIds)
            impl_->forgotten_.push_back(communicator);
        else
            impl_->forgotten_[impl_->next_forgotten_++ % kForgottenIds] = communicator;
    }
    impl_->unlock();
    done.run(impl_->config_);
}

} // namespace collectives
