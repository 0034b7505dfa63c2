// The messenger's outgoing side: puts what waits into the peers' rings, answers first, then messages in order of
// posting, then fragments of large ones in turn. Private to the messenger.
#include <algorithm>

#include "engine/messenger_state.h"
#include "transport/faults.h"

namespace collectives {

using namespace messages;

void Messenger::Impl::ring_doorbell(Peer& peer) {
    if (!peer.needs_wake)
        return;
    peer.needs_wake = false;
    if (peer.wake)
        peer.wake();
}

/// Every record goes out here; false: there is no room for it (or this node is dead).
bool Messenger::Impl::write(Peer& peer, const RecordHeader& header, const void* payload, int64_t leave_free_bytes,
                            CopyFunction copy) {
    Faults* const faults = config_.faults;
    if (faults != nullptr && !faults->may_publish())
        return false;
    if (!peer.tx.try_write(header, payload, leave_free_bytes, copy))
        return false;
    peer.needs_wake = true;
    if (faults != nullptr)
        faults->published();
    return true;
}

void Messenger::Impl::post_control(Peer& peer, const RecordHeader& header) {
    if (!peer.live())
        return;
    if (peer.control.empty() && write(peer, header, nullptr, 0, plain_copy))
        return;
    Operation* op = allocate(State::control);
    op->peer = &peer;
    op->header = header;
    peer.control.push_back(op);
}

void Messenger::Impl::clear_to_send(Operation* recv) {
    RecordHeader header;
    header.kind = RecordKind::clear_to_send;
    header.communicator = recv->group->info.id;
    header.tag = recv->tag;
    header.source = uint32_t(recv->group->info.rank);
    header.message = recv->remote_id;
    header.total = uint64_t(recv->bytes);
    header.offset = recv->id();
    post_control(*recv->peer, header);
}

bool Messenger::Impl::push_message(Peer& peer, const Group& group, uint32_t tag, const void* data, int64_t bytes) {
    RecordHeader header;
    header.kind = RecordKind::eager;
    header.communicator = group.info.id;
    header.tag = tag;
    header.source = uint32_t(group.info.rank);
    header.length = uint32_t(bytes);
    header.total = uint64_t(bytes);
    return write(peer, header, data, 0, plain_copy);
}

/// The message that goes out next: the first one, or where faults reorder, any that is the first with its communicator
/// and tag.
Operation* Messenger::Impl::next_queued(Peer& peer) {
    if (config_.faults == nullptr || !config_.faults->reorders())
        return peer.queued.front();
    std::vector<Operation*> firsts;
    for (Operation* op = peer.queued.front(); op != nullptr; op = OperationQueue::next(op))
        if (std::none_of(firsts.begin(), firsts.end(),
                         [op](Operation* each) { return each->group == op->group && each->tag == op->tag; }))
            firsts.push_back(op);
    return firsts[config_.faults->choose(firsts.size())];
}

/// Sends a queued message whole or announces it, and takes it out of the queue; false when there is no room.
bool Messenger::Impl::announce(Peer& peer, Operation* op, Deferred& done) {
    if (op->bytes <= peer.eager_limit_bytes) {
        if (!push_message(peer, *op->group, op->tag, op->data, op->bytes))
            return false;
        end(op, Status(), done);
        return true;
    }
    RecordHeader header;
    header.kind = RecordKind::request_to_send;
    header.communicator = op->group->info.id;
    header.tag = op->tag;
    header.source = uint32_t(op->group->info.rank);
    header.message = op->id();
    header.total = uint64_t(op->bytes);
    if (!write(peer, header, nullptr, 0, plain_copy))
        return false;
    peer.queued.erase(op);
    op->state = State::awaiting_send;
    return true;
}

bool Messenger::Impl::push_fragment(Peer& peer, Operation* op, Deferred& done) {
    RecordHeader header;
    header.kind = RecordKind::fragment;
    header.communicator = op->group->info.id;
    header.tag = op->tag;
    header.source = uint32_t(op->group->info.rank);
    header.length = uint32_t(std::min(peer.fragment_limit_bytes, op->bytes - op->moved_bytes));
    header.message = op->remote_id;
    header.total = uint64_t(op->bytes);
    header.offset = uint64_t(op->moved_bytes);
    if (!write(peer, header, op->data + op->moved_bytes, peer.reserve_bytes, config_.copy_to_ring))
        return false;
    op->moved_bytes += header.length;
    if (op->moved_bytes == op->bytes) {
        end(op, Status(), done);
    } else {
        peer.streaming.erase(op); // the others' turn
        peer.streaming.push_back(op);
    }
    return true;
}

bool Messenger::Impl::flush_queues(Peer& peer, Deferred& done, bool* blocked) {
    bool moved = false;
    *blocked = true;
    while (Operation* op = peer.control.front()) {
        if (!write(peer, op->header, nullptr, 0, plain_copy))
            return moved;
        moved = true;
        peer.control.erase(op);
        release(op);
    }
    while (!peer.queued.empty() && !done.full()) {
        if (!announce(peer, next_queued(peer), done))
            return moved;
        moved = true;
    }
    int64_t budget_bytes = peer.tx.capacity_bytes();
    while (!peer.streaming.empty() && !done.full() && budget_bytes > 0) {
        if (!push_fragment(peer, peer.streaming.front(), done))
            return moved;
        budget_bytes -= peer.fragment_limit_bytes;
        moved = true;
    }
    *blocked = false;
    return moved;
}

bool Messenger::Impl::flush(Peer& peer, Deferred& done) {
    if (!peer.live())
        return false;
    bool blocked = false;
    bool moved = flush_queues(peer, done, &blocked);
    if (blocked) {
        if (peer.tx.corrupt()) {
            fail_peer(peer,
                      Status(Code::peer_failed, "peer " + peer.name + ": corrupt message ring (its read counter)"),
                      done);
            return true;
        }
        moved |= peer.tx.await_room(); // room that has just come counts: the caller must not sleep on it
    }
    ring_doorbell(peer);
    return moved;
}

} // namespace collectives
