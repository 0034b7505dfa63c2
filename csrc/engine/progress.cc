// The progress thread, passes, and who stands aside for whom.
#include "engine/progress.h"

#include <algorithm>

#include <unistd.h>

#include "engine/communicator_impl.h"
#include "kernels/kernels.h"

namespace collectives {

ProgressEngine& ProgressEngine::of(LocalNode& node) {
    std::lock_guard<std::mutex> lock(node.engine_mutex);
    if (node.engine == nullptr) {
        node.engine = std::make_shared<ProgressEngine>(node);
        node.stop_engine = [](void* engine) {
            if (engine != nullptr)
                static_cast<ProgressEngine*>(engine)->stop();
        };
    }
    return *static_cast<ProgressEngine*>(node.engine.get());
}

MessengerConfig ProgressEngine::messenger_config() {
    MessengerConfig config;
    config.copy_to_ring = kernels::copy_fn(kernels::Store::plain);
    config.copy_from_ring = kernels::copy_fn(kernels::Store::plain);
    config.on_late_error = [this](uint64_t id, const Status& status) { late_error(id, status); };
    config.faults = node_.faults();
    return config;
}

ProgressEngine::ProgressEngine(LocalNode& node) : node_(node), messenger_(messenger_config()) {}

Status ProgressEngine::open_hub(const std::string& interface, WireHub** out) {
    TcpMesh* mesh = nullptr;
    COLLECTIVES_RETURN_IF_ERROR(node_.open_mesh(interface, &mesh));
    std::lock_guard<std::mutex> lock(mutex_);
    if (hub_ == nullptr) {
        std::lock_guard<std::mutex> mesh_lock(mesh->mutex());
        hub_ = std::make_unique<WireHub>(*mesh);
        hub_->wake_sleepers = [this] { ring_own(); };
        open_hub_.store(hub_.get(), std::memory_order_release);
    }
    *out = hub_.get();
    return {};
}

/// Moves frames of the links, unless another thread does.
bool ProgressEngine::pass_links() {
    WireHub* hub = open_hub_.load(std::memory_order_acquire);
    if (hub == nullptr)
        return false;
    std::unique_lock<std::mutex> lock(hub->mesh().mutex(), std::try_to_lock);
    bool moved = lock.owns_lock() && hub->progress();
    if (moved && hub->others_moved(nullptr))
        ring_own();
    if (lock.owns_lock()) {
        lock.unlock();
        hub->has_left();
    }
    return moved;
}

void ProgressEngine::introduce(uint64_t id, const std::weak_ptr<CommunicatorImpl>& communicator) {
    std::lock_guard<std::mutex> lock(mutex_);
    known_[id] = communicator;
}

void ProgressEngine::forget(uint64_t id) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        known_.erase(id);
    }
    messenger_.forget_communicator(id);
}

void ProgressEngine::late_error(uint64_t id, const Status& status) {
    std::shared_ptr<CommunicatorImpl> communicator;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (auto it = known_.find(id); it != known_.end())
            communicator = it->second.lock();
    }
    if (communicator)
        communicator->message_failed(status);
}

ProgressEngine::~ProgressEngine() { stop(); }

void ProgressEngine::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
    }
    wanted_.notify_all();
    LocalNode::ring_always(node_.bell());
    if (thread_.joinable())
        thread_.join();
}

void ProgressEngine::set_local_ranks(int ranks) {
    if (ranks > sysconf(_SC_NPROCESSORS_ONLN))
        crowded_.store(true, std::memory_order_relaxed);
}

Status ProgressEngine::slot_of(PeerProcess* peer, int* slot) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = slots_.find(peer);
    if (it != slots_.end()) {
        *slot = it->second;
        return {};
    }
    if (peer->tx.offset < 0 || peer->rx.offset < 0) {
        *slot = Messenger::kNoPeer; // no room for a ring: messages to it are refused, collectives work
        return {};
    }
    RingMemory tx{node_.segment_base() + peer->tx.offset, peer->tx.bytes};
    RingMemory rx{peer->segment->base() + peer->rx.offset, peer->rx.bytes};
    auto wake = [header = peer->header(), bell = peer->bell()] {
        if (header->sleepers.fetch_add(0, std::memory_order_seq_cst) != 0)
            LocalNode::ring_always(bell);
    };
    COLLECTIVES_RETURN_IF_ERROR(messenger_.add_peer(tx, rx, wake, LocalNode::death_text(*peer), slot));
    slots_[peer] = *slot;
    return {};
}

Status ProgressEngine::slot_of(TcpLink* link, int* slot) {
    WireHub* hub = open_hub_.load(std::memory_order_acquire);
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = link_slots_.find(link);
    if (it != link_slots_.end()) {
        *slot = it->second < 0 ? -1 - it->second : it->second;
        return {};
    }
    std::lock_guard<std::mutex> mesh_lock(hub->mesh().mutex());
    WireMessages::Rings rings = hub->messages().rings_of(*link);
    auto wake = [messages = &hub->messages()] { messages->written(); };
    const TcpPeer& peer = link->peer();
    COLLECTIVES_RETURN_IF_ERROR(messenger_.add_peer(
        rings.tx, rings.rx, wake, "process " + std::to_string(peer.pid) + " on host " + peer.host, slot));
    link_slots_[link] = *slot;
    return {};
}

Status ProgressEngine::death_among(const std::vector<int>& global_ranks) {
    std::vector<std::shared_ptr<CommunicatorImpl>> alive;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        for (auto& [id, known] : known_)
            if (auto communicator = known.lock())
                alive.push_back(std::move(communicator));
    }
    for (auto& communicator : alive) COLLECTIVES_RETURN_IF_ERROR(communicator->death_among(global_ranks));
    return {};
}

Tuning ProgressEngine::tuning() {
    std::lock_guard<std::mutex> lock(mutex_);
    return tuning_;
}

std::string ProgressEngine::links() {
    std::lock_guard<std::mutex> lock(mutex_);
    return links_;
}

void ProgressEngine::set_links(const std::string& text) {
    std::lock_guard<std::mutex> lock(mutex_);
    links_ = text;
}

void ProgressEngine::set_tuning(const Tuning& tuning) {
    std::lock_guard<std::mutex> lock(mutex_);
    tuning_ = tuning;
}

void ProgressEngine::look_at_peers() {
    std::vector<std::pair<PeerProcess*, int>> ended;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        for (auto& [peer, slot] : slots_)
            if (peer->dead.load(std::memory_order_acquire) && !buried_[peer]) {
                buried_[peer] = true;
                ended.emplace_back(peer, slot);
            }
    }
    std::vector<std::pair<TcpLink*, int>> lost;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        for (auto& [link, slot] : link_slots_)
            if (slot >= 0 && link->lost()) {
                lost.emplace_back(link, slot);
                slot = -1 - slot;
            }
    }
    for (auto& [link, slot] : lost)
        messenger_.fail_peer(slot, Status(Code::peer_failed, "process " + std::to_string(link->peer().pid) +
                                                                 " on host " + link->peer().host +
                                                                 (link->left() ? " has exited" : " died")));
    for (auto& [peer, slot] : ended) {
        bool left = peer->header()->state.load(std::memory_order_acquire) == uint32_t(ProcessState::leaving);
        messenger_.fail_peer(
            slot, Status(Code::peer_failed, LocalNode::death_text(*peer) + (left ? " has exited" : " died")));
    }
}

void ProgressEngine::activate(const std::shared_ptr<CommunicatorImpl>& communicator) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (std::find(active_.begin(), active_.end(), communicator) == active_.end())
            active_.push_back(communicator);
        start_thread();
    }
    wanted_.notify_one();
    ring_own();
}

void ProgressEngine::want_messages() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        start_thread();
    }
    wanted_.notify_one();
    ring_own();
}

void ProgressEngine::start_thread() { // mutex_ held
    if (!thread_.joinable() && !stopping_)
        thread_ = std::thread(&ProgressEngine::thread_main, this);
}

bool ProgressEngine::has_work() { // mutex_ held
    TcpMesh* mesh = node_.mesh();
    WireHub* hub = open_hub_.load(std::memory_order_acquire);
    return !active_.empty() || messenger_.anything_pending() || (mesh != nullptr && mesh->pending()) ||
           (hub != nullptr && hub->messages().pending());
}

bool ProgressEngine::pass() {
    bool moved = pass_links();
    std::vector<EndedCollective> ended;
    std::vector<std::shared_ptr<CommunicatorImpl>> idle; // perhaps their last owner: let go of with no lock held
    if (std::unique_lock<std::mutex> pass_lock(pass_mutex_, std::try_to_lock); pass_lock.owns_lock()) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            auto first_idle = std::partition(active_.begin(), active_.end(),
                                             [](const auto& communicator) { return !communicator->queue_empty(); });
            idle.assign(std::make_move_iterator(first_idle), std::make_move_iterator(active_.end()));
            active_.erase(first_idle, active_.end());
            pass_list_ = active_;
        }
        for (auto& communicator : pass_list_) moved |= communicator->advance_queue(&ended);
        pass_list_.clear();
    }
    for (EndedCollective& each : ended) // callbacks run with no lock of ours held
        each.request->finish(each.status);
    if (!ended.empty())
        ring_own(); // another thread of this process may sleep for one of them
    return messenger_.progress() || moved;
}

void ProgressEngine::look_around() {
    look_at_peers();
    std::vector<std::shared_ptr<CommunicatorImpl>> list;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        list = active_;
    }
    for (auto& communicator : list) communicator->look_around();
}

void ProgressEngine::thread_main() {
    for (;;) {
        {
            std::unique_lock<std::mutex> lock(mutex_);
            wanted_.wait(lock, [this] { return stopping_ || (helpers_.load() == 0 && has_work()); });
            if (stopping_)
                return;
        }
        wait(
            [this] {
                bool moved = pass();
                if (helpers_.load() != 0)
                    return Look::done;
                std::lock_guard<std::mutex> lock(mutex_);
                return stopping_ || !has_work() ? Look::done : moved ? Look::moved : Look::nothing;
            },
            [this] {
                look_around();
                return false;
            },
            std::min(kThreadSpinNs, node_.config().spin_ns), open_hub_.load() != nullptr);
    }
}

ProgressEngine::Helping::Helping(ProgressEngine& engine) : engine_(engine) {
    if (engine_.helpers_.fetch_add(1) == 0)
        engine_.ring_own(); // the thread may sleep in the middle of a wait: it need not, we are here
}

ProgressEngine::Helping::~Helping() {
    if (engine_.helpers_.fetch_sub(1) != 1)
        return;
    // The thread may have seen us, and not sleep yet: whoever gets the lock now comes after that.
    {
        std::lock_guard<std::mutex> lock(engine_.mutex_);
    }
    engine_.wanted_.notify_one();
}

} // namespace collectives
