// The messenger's calls, its lock and its pool of operations.
#include "engine/messenger.h"

#include <algorithm>

#include "base/check.h"
#include "engine/messenger_state.h"

namespace collectives {

using namespace messages;

namespace {

constexpr size_t kForgottenIds = 1024;

int64_t whole_cells(int64_t bytes) { return bytes / kCellBytes * kCellBytes; }

} // namespace

namespace messages {

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

namespace {

/// A send to another process, from its posting to its end.
int64_t counts_as_unsent(const Operation& op) {
    const bool sends =
        op.state == State::queued_send || op.state == State::awaiting_send || op.state == State::streaming_send;
    return sends && !op.peer->is_self ? 1 : 0;
}

} // namespace

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
    op->group->unsent += counts_as_unsent(*op);
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
    if (op->state != State::control)
        op->group->unsent -= counts_as_unsent(*op);
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
    // An eighth of the ring keeps both sides busy; below 4 KiB a fragment's own cost shows, so then a quarter.
    const int64_t eighth = std::max(whole_cells(peer.tx.capacity_bytes() / 8), std::min(quarter, int64_t(4096)));
    peer.fragment_limit_bytes =
        std::max(kCellBytes, whole_cells(std::min(impl_->config_.fragment_limit_bytes, eighth)));
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
        if (impl_->again_.load()) // a store costs more than a look, and idle calls are many
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

int64_t Messenger::unsent(uint64_t communicator) const {
    impl_->lock();
    const Impl::Group* group = impl_->find_group(communicator);
    const int64_t count = group == nullptr ? 0 : group->unsent;
    impl_->unlock();
    return count;
}

void Messenger::peer_closed(uint64_t communicator, int rank, const Status& status) {
    COLLECTIVES_CHECK(!status.ok());
    for (int64_t round = 0, most = 1;; ++round) { // what it had published before it closed still counts
        Deferred done;
        bool more = false;
        impl_->lock();
        Impl::Group* group = impl_->find_group(communicator);
        if (group != nullptr && group->registered && rank >= 0 && rank < group->size()) {
            const int slot = group->info.slots[size_t(rank)];
            Peer* peer = slot == kNoPeer ? nullptr : &impl_->peers_[size_t(slot)];
            most = peer != nullptr ? peer->rx.capacity_bytes() / kCellBytes : 0; // others may go on to fill the ring
            more = round < most && peer != nullptr && peer->live() && impl_->drain(*peer, done);
            if (!more && group->closed_by(rank).ok()) {
                group->closed.emplace_back(rank, status);
                impl_->end_receives_from_closed(*group, done);
            }
        }
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
