// The messenger's matching: what a posted send or receive meets, here or in the arrivals, and messages to this process
// itself. Private to the messenger.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "engine/messenger_state.h"
#include "transport/faults.h"

namespace collectives {

using namespace messages;

namespace {

constexpr int64_t kSelfInlineBytes = 64 * 1024; // copied in the call that matches
constexpr int64_t kSelfPieceBytes = 256 * 1024; // above: copied a pass

} // namespace

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

/// Why nothing more can come from the rank (< 0: from any other), which has closed the communicator. Ok: it has not.
Status Group::closed_by(int source) const {
    if (source < 0)
        return int(closed.size()) == size() - 1 && !closed.empty() ? closed.front().second : Status();
    for (auto& [rank, status] : closed)
        if (rank == source)
            return status;
    return Status();
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

} // namespace messages

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
    const bool held_back = config_.faults != nullptr && config_.faults->reorders();
    const bool first = peer.control.empty() && peer.queued.empty() && !held_back;
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
    Status failed = posting.peer ? posting.peer->failed : failed_member(group);
    if (failed.ok() && !group.closed.empty())
        failed = group.closed_by(source);
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

bool Messenger::Impl::flush_self(Deferred& done) {
    Operation* send = self_.streaming.pop_front();
    self_.streaming.push_back(send); // the others' turn next
    copy_to_self(send, std::min(kSelfPieceBytes, send->bytes - send->moved_bytes), done);
    return true;
}

void Messenger::Impl::copy_to_self(Operation* send, int64_t piece_bytes, Deferred& done) {
    Operation* recv = send->partner;
    if (piece_bytes > 0)
        std::memcpy(recv->data + send->moved_bytes, send->data + send->moved_bytes, size_t(piece_bytes));
    send->moved_bytes += piece_bytes;
    if (send->moved_bytes < send->bytes)
        return;
    end(send, Status(), done);
    end(recv, Status(), done);
}

} // namespace collectives
