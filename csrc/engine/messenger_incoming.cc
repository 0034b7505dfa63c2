// The messenger's incoming side: takes records out of the peers' rings. Private to the messenger.
//
// Why it cannot deadlock: taking a record never needs room in any ring (an answer that finds none waits in
// peer.control), so every process that calls progress() empties its rings, whatever it waits for itself.
#include "engine/messenger_state.h"
#include "transport/faults.h"

namespace collectives {

using namespace messages;

namespace {

Status nonsense(const std::string& what) { return Status(Code::internal, "corrupt message record: " + what); }

} // namespace

bool Messenger::Impl::pass(Deferred& done) {
    if (config_.faults != nullptr && config_.faults->dead())
        return false; // takes nothing any more, either
    bool moved = false;
    const size_t count = peers_.size();
    for (size_t i = 0; i < count && !done.full(); ++i) {
        first_peer_ = first_peer_ + 1 < count ? first_peer_ + 1 : 0;
        Peer& peer = peers_[first_peer_];
        if (!peer.live())
            continue;
        moved |= drain(peer, done);
        moved |= flush(peer, done);
    }
    if (!self_.streaming.empty())
        moved |= flush_self(done);
    return moved;
}

bool Messenger::Impl::drain(Peer& peer, Deferred& done) {
    RingReader& rx = peer.rx;
    int64_t budget_bytes = rx.capacity_bytes(); // a fast writer must not keep us from the other peers
    bool moved = false;
    while (budget_bytes > 0 && !done.full()) {
        const RingReader::Peek peek = rx.peek();
        if (peek == RingReader::Peek::empty)
            break;
        Status status =
            peek == RingReader::Peek::corrupt ? Status(Code::internal, rx.error()) : handle(peer, rx.header(), done);
        if (!status.ok()) {
            fail_peer(peer,
                      Status(Code::peer_failed, "peer " + peer.name + ": " + status.message() +
                                                    "; its memory is damaged or it runs another version"),
                      done);
            return true;
        }
        budget_bytes -= kCellBytes + rx.header().length;
        rx.pop();
        moved = true;
        if (rx.unpublished_bytes() >= rx.capacity_bytes() / 4)
            peer.needs_wake |= rx.publish();
    }
    if (moved)
        peer.needs_wake |= rx.publish();
    return moved;
}

Status Messenger::Impl::handle(Peer& peer, const RecordHeader& header, Deferred& done) {
    switch (header.kind) {
    case RecordKind::eager:
    case RecordKind::request_to_send: return on_message(peer, header, done);
    case RecordKind::clear_to_send: return on_clear_to_send(peer, header);
    case RecordKind::fragment: return on_fragment(peer, header, done);
    case RecordKind::cancel: return on_cancel(peer, header, done);
    case RecordKind::refuse: return on_refuse(peer, header, done);
    case RecordKind::mismatch: return on_mismatch(peer, header, done);
    case RecordKind::none: break;
    }
    return nonsense("unknown kind");
}

/// The first time that a rank without a slot speaks tells where it is.
bool Messenger::Impl::source_is_valid(Group& group, const Peer& peer, uint32_t source) {
    if (!group.registered)
        return source < uint32_t(1) << 24; // add_communicator checks the rest
    if (source >= uint32_t(group.size()) || int(source) == group.info.rank)
        return false;
    int& slot = group.info.slots[source];
    if (slot == kNoPeer)
        slot = peer.slot;
    return slot == peer.slot;
}

Status Messenger::Impl::on_message(Peer& peer, const RecordHeader& header, Deferred& done) {
    const bool whole = header.kind == RecordKind::eager;
    Group* group = find_group(header.communicator);
    if ((group == nullptr && was_forgotten(header.communicator)) || (group != nullptr && !group->failed.ok())) {
        if (!whole) {
            RecordHeader answer = header;
            answer.kind = RecordKind::refuse;
            answer.source = group ? uint32_t(group->info.rank) : 0;
            answer.total = uint64_t(group ? group->failed.code() : Code::closed);
            post_control(peer, answer);
        }
        return Status();
    }
    if (group == nullptr) {
        auto& place = groups_[header.communicator];
        place = std::make_unique<Group>();
        place->info.id = header.communicator;
        group = place.get();
    }
    if (!source_is_valid(*group, peer, header.source))
        return nonsense("source " + std::to_string(header.source) + " is not that process");
    Operation* op = group->match(int(header.source), header.tag);
    if (op == nullptr) {
        keep_arrival(peer, *group, header);
        return Status();
    }
    const int64_t bytes = whole ? int64_t(header.length) : int64_t(header.total);
    op->rank = int(header.source);
    if (op->bytes != bytes) {
        tell_mismatch(*group, peer, op->tag, whole ? 0 : header.message, bytes, op->bytes);
        end(op, mismatch(*group, op->rank, group->info.rank, op->tag, bytes, op->bytes), done);
    } else if (whole) {
        peer.rx.read_payload(op->data, plain_copy);
        end(op, Status(), done);
    } else {
        activate(op, peer);
        op->remote_id = header.message;
        clear_to_send(op);
    }
    return Status();
}

void Messenger::Impl::keep_arrival(Peer& peer, Group& group, const RecordHeader& header) {
    Arrival* arrival = Arrival::make(header.length);
    arrival->peer = &peer;
    arrival->source = int(header.source);
    arrival->tag = header.tag;
    arrival->announced = header.kind == RecordKind::request_to_send;
    arrival->bytes = arrival->announced ? int64_t(header.total) : int64_t(header.length);
    arrival->message = arrival->announced ? header.message : 0;
    peer.rx.read_payload(arrival->data(), plain_copy);
    group.add_arrival(arrival);
}

/// The live operation that a peer means by `id`; *op is null when it has ended, which is no fault of the peer.
Status Messenger::Impl::find_operation(const Peer& peer, uint64_t id, Operation** op) {
    *op = nullptr;
    const uint32_t index = uint32_t(id);
    const uint32_t generation = uint32_t(id >> 32);
    if (index >= operations_.size() || operations_[index].generation < generation)
        return nonsense("message id " + std::to_string(id) + " was never given out");
    Operation& found = operations_[index];
    if (found.generation > generation || found.state == State::free)
        return Status();
    if (found.peer != &peer || found.state == State::control)
        return nonsense("message id " + std::to_string(id) + " is another peer's");
    *op = &found;
    return Status();
}

Status Messenger::Impl::on_clear_to_send(Peer& peer, const RecordHeader& header) {
    Operation* op;
    COLLECTIVES_RETURN_IF_ERROR(find_operation(peer, header.message, &op));
    if (op == nullptr)
        return Status(); // given up meanwhile; a cancel is on its way
    if (op->state != State::awaiting_send)
        return nonsense("clear_to_send for a message that does not wait for it");
    op->remote_id = header.offset;
    op->state = State::streaming_send;
    peer.streaming.push_back(op);
    return Status();
}

Status Messenger::Impl::on_fragment(Peer& peer, const RecordHeader& header, Deferred& done) {
    Operation* op;
    COLLECTIVES_RETURN_IF_ERROR(find_operation(peer, header.message, &op));
    if (op == nullptr)
        return Status(); // given up meanwhile: drained and dropped
    if (op->state != State::active_recv || int64_t(header.offset) != op->moved_bytes ||
        int64_t(header.length) > op->bytes - op->moved_bytes)
        return nonsense("a fragment of " + std::to_string(header.length) + " bytes at " +
                        std::to_string(header.offset) + " that does not follow");
    peer.rx.read_payload(op->data + op->moved_bytes, config_.copy_from_ring);
    op->moved_bytes += header.length;
    if (op->moved_bytes == op->bytes)
        end(op, Status(), done);
    return Status();
}

Status Messenger::Impl::on_cancel(Peer& peer, const RecordHeader& header, Deferred& done) {
    Operation* recv = nullptr;
    if (header.offset != 0)
        COLLECTIVES_RETURN_IF_ERROR(find_operation(peer, header.offset, &recv));
    Group* const group = find_group(header.communicator);
    if (recv == nullptr && (group == nullptr || !group->failed.ok()))
        return Status(); // nothing of that communicator is left here
    if (recv == nullptr) {
        Arrival* arrival =
            group->arrivals.first_of(source_key(int(header.source), header.tag), [&](const Arrival& each) {
                return each.peer == &peer && each.announced && each.message == header.message;
            });
        if (arrival != nullptr) {
            group->remove_arrival(arrival);
            return Status();
        }
    }
    for (size_t i = 0; header.offset == 0 && recv == nullptr && i < operations_.size(); ++i) {
        Operation& op = operations_[i]; // our clear_to_send is still on its way
        if (op.state == State::active_recv && op.peer == &peer && op.remote_id == header.message)
            recv = &op;
    }
    if (recv != nullptr) {
        if (recv->state != State::active_recv)
            return nonsense("cancel of something that is no receive");
        end(recv,
            Status(Code::peer_failed, recv->group->rank_name(recv->rank) + " gave up its send of " +
                                          std::to_string(recv->bytes) + " bytes with tag " + std::to_string(recv->tag) +
                                          " in communicator '" + recv->group->info.name + "'"),
            done);
    }
    return Status();
}

Status Messenger::Impl::on_refuse(Peer& peer, const RecordHeader& header, Deferred& done) {
    Operation* op;
    COLLECTIVES_RETURN_IF_ERROR(find_operation(peer, header.message, &op));
    if (op == nullptr)
        return Status();
    if ((op->state != State::awaiting_send && op->state != State::streaming_send) ||
        header.total > uint64_t(Code::internal))
        return nonsense("refuse of something that is no announced send");
    end(op,
        Status(Code::peer_failed, op->group->rank_name(op->rank) + " gave up its receive of " +
                                      std::to_string(op->bytes) + " bytes with tag " + std::to_string(op->tag) +
                                      " in communicator '" + op->group->info.name + "' (" +
                                      code_name(Code(header.total)) + " there)"),
        done);
    return Status();
}

Status Messenger::Impl::on_mismatch(Peer& peer, const RecordHeader& header, Deferred& done) {
    if (header.message == 0) { // a small send, which ended long ago
        Group* group = find_group(header.communicator);
        if (group == nullptr || !group->registered || !group->failed.ok())
            return Status();
        if (!source_is_valid(*group, peer, header.source))
            return nonsense("source " + std::to_string(header.source) + " is not that process");
        done.add_late_error(group->info.id, mismatch(*group, group->info.rank, int(header.source), header.tag,
                                                     int64_t(header.total), int64_t(header.offset)));
        return Status();
    }
    Operation* op;
    COLLECTIVES_RETURN_IF_ERROR(find_operation(peer, header.message, &op));
    if (op == nullptr)
        return Status();
    if (op->state != State::awaiting_send)
        return nonsense("mismatch for a message that does not wait");
    end(op, mismatch(*op->group, op->group->info.rank, op->rank, op->tag, op->bytes, int64_t(header.offset)), done);
    return Status();
}

} // namespace collectives
