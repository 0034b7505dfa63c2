// WireGroup: a communicator's members as they are reached over links, what each has shown of itself, and the operation in
// progress. WireHub: all wire groups of a process, and the way of a frame to its group. Private to the engine.
//
// Everything here wants the mesh's mutex held, unless a comment says otherwise.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/communicator.h"
#include "engine/wire_messages.h"
#include "transport/tcp_mesh.h"

namespace collectives {

class WireOperation;
class WireHub;

struct WireMember {
    TcpLink* link = nullptr; // null: this rank
    std::string host;
    int64_t pid = 0;
    uint64_t begun = 0; // the latest operation that it says it has begun
    wire::FrameHeader shown;
    uint64_t told = 0; // the latest that we told it of
    Code failure = Code::ok;
    int culprit = -1;
    std::string failure_text;
    uint64_t ended_after = 0; // the last operation that it took part in to its end, if it failed or closed the group
};

/// Data for an operation that this rank has not begun.
struct EarlyFrame {
    int rank; // of the sender
    wire::FrameHeader header;
    std::vector<uint8_t> payload;
};

class WireGroup {
  public:
    WireGroup(WireHub& hub, const CommunicatorConfig& config, uint64_t id, std::vector<WireMember> members);
    ~WireGroup(); // takes the lock

    uint64_t id() const { return id_; }
    int rank() const { return rank_; }
    int size() const { return int(members_.size()); }
    WireMember& member(int q) { return members_[size_t(q)]; }
    const std::string& name() const { return name_; }
    WireHub& hub() { return hub_; }
    /// "rank 2 (process 71 on host a)", with the rank's number in the job where that differs. Any thread.
    std::string name_of(int q) const;

    // Liveness and failures, as those of Group (group.h). Any thread; they take no lock but for texts.
    bool is_dead(int q) const {
        const WireMember& m = members_[size_t(q)];
        return m.link != nullptr && m.link->lost() && !m.link->left();
    }
    int dead_member() const;
    Status known_failure(int* culprit);
    /// As Group::peer_trouble: one that has left or closed counts only if the operation in progress waits for it.
    Status peer_trouble(int* culprit);
    void publish_failure(Code code, int culprit, const std::string& text);
    bool has_closed(int q) const;
    /// Messages to members that are not among the links' frames yet: a notice would overtake them.
    bool messages_waiting();

    // For the hub.
    /// The sender's rank; -1 when the header names one that this link is not.
    int rank_of(const TcpLink& link, const wire::FrameHeader& header) const;
    void take_unknown(EarlyFrame frame);
    Landing land(int q, const wire::FrameHeader& header);
    void landed(int q, const wire::FrameHeader& header, uint8_t* data);
    void notice(int q, const wire::FrameHeader& header, const uint8_t* payload);

    /// A peer that runs the communicator's call of this number as an operation of this group, which this rank does not; what it
    /// shows of the call. -1: none. Takes the lock.
    int runs_here(uint64_t call_number, wire::FrameHeader* shown);

    void set_operation(WireOperation* operation) { operation_ = operation; }
    /// The frames of an operation that came before it began. Taken out.
    std::vector<EarlyFrame> take_early(uint64_t sequence);

  private:
    static void has_shown(WireMember& member, const wire::FrameHeader& header);

    WireHub& hub_;
    const int rank_;
    const std::string name_;
    const uint64_t id_;
    std::vector<int> shown_ranks_, global_ranks_;
    std::vector<WireMember> members_;
    WireOperation* operation_ = nullptr;
    std::vector<EarlyFrame> early_;
    std::unordered_map<const uint8_t*, std::vector<uint8_t>> arriving_; // payloads of early frames
    bool failure_published_ = false;
};

class WireHub final : public FrameSink {
  public:
    explicit WireHub(TcpMesh& mesh) : mesh_(mesh), messages_(mesh) { mesh.set_sink(this); }
    ~WireHub() { mesh_.set_sink(nullptr); }

    TcpMesh& mesh() { return mesh_; }
    void add(WireGroup& group);
    void forget(uint64_t id);

    /// Moves frames for everybody. True: something moved.
    bool progress() {
        bool pumped = messages_.pump();
        return mesh_.progress() || pumped;
    }
    WireMessages& messages() { return messages_; }
    /// Wakes this process's sleepers; the engine sets it. Must be short, and must not call the hub.
    std::function<void()> wake_sleepers;
    /// Who finds the lock taken, and may sleep next, asks once more, having said so: the holder may have moved this one's
    /// frames already, and rung before there was a sleeper to hear it. It rings again after it has let go.
    bool enter(std::unique_lock<std::mutex>& lock) {
        if (lock.owns_lock() || lock.try_lock())
            return true;
        refused_.store(true); // before the try, as the holder looks after its release
        return lock.try_lock();
    }
    /// After the lock was released.
    void has_left() {
        if (refused_.load() && refused_.exchange(false) && wake_sleepers)
            wake_sleepers();
    }
    /// Something happened for another group than this, whose thread may sleep. Reset by asking.
    bool others_moved(const WireGroup* mine);
    void moved(const WireGroup* group);

    Landing land(TcpLink& link, const wire::FrameHeader& header) override;
    void landed(TcpLink& link, const wire::FrameHeader& header, uint8_t* data) override;
    bool notice(TcpLink& link, const wire::FrameHeader& header, const uint8_t* payload) override;
    void lost(TcpLink& link) override;

  private:
    std::atomic<bool> refused_{false};

    struct Unknown { // a frame of a group that has not formed here yet
        TcpLink* link;
        EarlyFrame frame;
    };
    bool was_forgotten(uint64_t id) const;

    TcpMesh& mesh_;
    WireMessages messages_;
    std::unordered_map<uint64_t, WireGroup*> groups_;
    std::vector<Unknown> unknown_;
    std::vector<uint64_t> forgotten_;
    size_t next_forgotten_ = 0;
    std::unordered_map<const uint8_t*, std::vector<uint8_t>> arriving_; // payloads of unknown groups' frames
    int64_t unknown_bytes_ = 0;
    const WireGroup* moved_ = nullptr;
    bool moved_many_ = false;
};

constexpr int64_t kEagerBytes = 64 << 10; // of an operation to a peer that has not said that it has begun it
constexpr uint64_t kMostAhead = 8;        // operations that a rank may be ahead of what a peer has said

} // namespace collectives
