// How the messenger's operations end badly: communicators and peers that fail, and arrivals that should not be. Private
// to the messenger.
#include "engine/messenger_state.h"

namespace collectives {

using namespace messages;

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

/// Receives that nothing more can come for: their rank has closed the communicator, or all others have.
void Messenger::Impl::end_receives_from_closed(Group& group, Deferred& done) {
    for (Operation& op : operations_) {
        if (op.state != State::posted_recv || op.group != &group || op.peer == &self_)
            continue;
        if (const Status status = group.closed_by(op.peer == nullptr ? kAnyRank : op.rank); !status.ok())
            end(&op, status, done);
    }
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

} // namespace collectives
