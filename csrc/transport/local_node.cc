// Making a node, finding its peers, watching that they live, and letting go of everything in a forked child.
#include "transport/local_node.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "transport/handshake.h"
#include "transport/transports.h"

namespace collectives {
namespace {

std::mutex g_process_mutex;
std::unique_ptr<LocalNode>* g_process_node = nullptr; // never destroyed: threads may outlive statics
std::atomic<bool> g_forked{false};

std::mutex g_inproc_mutex; // guards the table and, through it, the rings of inproc nodes
std::map<Uuid, LocalNode*>& inproc_nodes() {
    static auto* nodes = new std::map<Uuid, LocalNode*>();
    return *nodes;
}

Status system_error(const std::string& what) { return Status(Code::internal, what + ": " + std::strerror(errno)); }

int64_t default_heap_bytes() {
    struct sysinfo info;
    int64_t total = sysinfo(&info) == 0 ? int64_t(info.totalram) * info.mem_unit : 4ll << 30;
    return (total + (1 << 21) - 1) >> 21 << 21;
}

Status map_shared(int fd, int64_t bytes, MappingPtr* out) {
    void* base = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED)
        return system_error("cannot map " + std::to_string(bytes) + " bytes of a peer's shared memory");
    *out = std::make_shared<Mapping>(base, bytes);
    return {};
}

} // namespace

bool in_forked_child() { return g_forked.load(std::memory_order_relaxed); }

Mapping::~Mapping() { munmap(base_, size_t(bytes_)); }

Status SharedMemory::create(const char* name, int64_t bytes, bool sharable, SharedMemory* out) {
    int fd = -1;
    if (sharable) {
        fd = int(syscall(SYS_memfd_create, name, 1u /* MFD_CLOEXEC */));
        if (fd < 0)
            return system_error("memfd_create failed");
        if (ftruncate(fd, bytes) != 0) {
            Status status = system_error("cannot size shared memory to " + std::to_string(bytes) + " bytes");
            close(fd);
            return status;
        }
    }
    int flags = MAP_NORESERVE | (sharable ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
    void* base = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED) {
        Status status = system_error("cannot map " + std::to_string(bytes) + " bytes of shared memory");
        if (fd >= 0)
            close(fd);
        return status;
    }
    out->mapping = std::make_shared<Mapping>(base, bytes);
    out->fd = fd;
    return {};
}

Status LocalNode::create(const NodeConfig& config, bool sharable, std::unique_ptr<LocalNode>* out) {
    std::unique_ptr<LocalNode> node(new LocalNode());
    node->config_ = config;
    if (node->config_.heap_bytes <= 0)
        node->config_.heap_bytes = default_heap_bytes();
    node->sharable_ = sharable;
    COLLECTIVES_RETURN_IF_ERROR(describe_this_process(config.host, &node->hello_));
    node->hello_.kind = sharable ? "shm" : "inproc";
    if (!config.island.empty())
        node->hello_.kind += "@" + config.island;
    if (config.faults != nullptr)
        node->faults_ = std::make_unique<Faults>(*config.faults, [raw = node.get()] { raw->simulate_death(); });
    COLLECTIVES_RETURN_IF_ERROR(
        SharedMemory::create("collectives-segment", config.segment_bytes, sharable, &node->segment_));
    COLLECTIVES_RETURN_IF_ERROR(
        SharedMemory::create("collectives-heap", node->config_.heap_bytes, sharable, &node->heap_));
    madvise(node->heap_base(), size_t(node->config_.heap_bytes), MADV_HUGEPAGE); // a wish, refused or not
    SegmentHeader* header = node->header();                                      // zeroed by the kernel
    header->magic = kSegmentMagic;
    header->wire_version = kWireVersion;
    header->pid = uint32_t(getpid());
    header->segment_bytes = uint64_t(config.segment_bytes);
    header->heap_bytes = uint64_t(node->config_.heap_bytes);
    std::memcpy(header->uuid, node->hello_.uuid.data(), sizeof header->uuid);
    header->self = reinterpret_cast<uint64_t>(header);
    header->state.store(uint32_t(ProcessState::alive), std::memory_order_release);
    node->arena_ = std::make_unique<Arena>(4096, config.segment_bytes);
    node->heap_arena_ = std::make_unique<Arena>(0, node->config_.heap_bytes, 4096);
    node->bell_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (node->bell_fd_ < 0)
        return system_error("cannot make an eventfd");
    if (sharable) {
        madvise(node->segment_base(), size_t(config.segment_bytes), MADV_DONTFORK);
        node->listener_ = open_listener(node->hello_.uuid);
        node->watch_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (node->listener_ < 0 || node->watch_event_ < 0)
            return system_error("cannot open the socket that peers attach through");
        node->watcher_ = std::thread(&LocalNode::watch, node.get());
    } else {
        std::lock_guard<std::mutex> lock(g_inproc_mutex);
        inproc_nodes()[node->hello_.uuid] = node.get();
    }
    *out = std::move(node);
    return {};
}

Status Node::process(const NodeConfig& config, Node** out) {
    if (in_forked_child())
        return Status(Code::closed, "collectives cannot be used in a child made by fork(): start processes with the "
                                    "spawn or forkserver method, or initialise after the fork");
    std::lock_guard<std::mutex> lock(g_process_mutex);
    if (g_process_node == nullptr) {
        std::unique_ptr<Node> node;
        COLLECTIVES_RETURN_IF_ERROR(create_node(config.faults != nullptr ? "faulty" : "shm", config, &node));
        g_process_node = new std::unique_ptr<LocalNode>(static_cast<LocalNode*>(node.release()));
        pthread_atfork(nullptr, nullptr, [] {
            g_forked.store(true);
            if (g_process_node != nullptr)
                (*g_process_node)->give_up_in_forked_child();
        });
    }
    *out = g_process_node->get();
    return {};
}

std::unique_ptr<Node> Node::inproc(const NodeConfig& config) {
    std::unique_ptr<Node> node;
    Status status = create_node(config.faults != nullptr ? "faulty" : "inproc", config, &node);
    COLLECTIVES_CHECK(status.ok());
    return node;
}

LocalNode::~LocalNode() {
    shutdown();
    engine.reset();
    if (!sharable_) {
        std::lock_guard<std::mutex> lock(g_inproc_mutex);
        inproc_nodes().erase(hello_.uuid);
    }
    close_descriptors();
}

void LocalNode::shutdown() {
    if (stopping_.exchange(true) || in_forked_child())
        return;
    if (stop_engine != nullptr)
        stop_engine(engine.get());
    if (mesh_ != nullptr && (faults_ == nullptr || !faults_->dead())) {
        std::lock_guard<std::mutex> lock(mesh_->mutex());
        mesh_->say_goodbye();
    }
    // The engine stays: groups that outlive the exit handlers (a model at module level holds one) still refer to it.
    if (faults_ == nullptr || !faults_->dead()) // the dead say no good-bye
        header()->state.store(uint32_t(ProcessState::leaving), std::memory_order_seq_cst);
    if (watcher_.joinable()) {
        wake_watcher();
        watcher_.join();
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [uuid, peer] : peers_)
        if (!peer->dead.load())
            ring_always(peer->bell());
}

void LocalNode::close_descriptors() {
    for (auto& [uuid, peer] : peers_)
        if (peer->life_fd >= 0)
            close(peer->life_fd);
    for (auto& [uuid, peer] : peers_)
        if (peer->bell_fd >= 0)
            close(peer->bell_fd);
    for (int* fd : {&listener_, &bell_fd_, &watch_event_, &segment_.fd, &heap_.fd}) {
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
    }
}

void LocalNode::give_up_in_forked_child() {
    // No lock: other threads are gone and may have held any. Only descriptors are given up; memory is left alone.
    close_descriptors();
    if (mesh_ != nullptr)
        mesh_->close_descriptors();
}

Status LocalNode::open_mesh(const std::string& interface, TcpMesh** out) {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::string& wish = interface.empty() ? config_.interface : interface;
    if (mesh_ == nullptr) {
        COLLECTIVES_RETURN_IF_ERROR(
            TcpMesh::create({wish, config_.towards, config_.secret, config_.streams, bell_fd_}, hello_, &mesh_));
        open_mesh_.store(mesh_.get(), std::memory_order_release);
    } else if (!interface.empty() && interface != mesh_->interface()) {
        return Status(Code::invalid_argument, "interface '" + interface + "': this process listens on " + mesh_->why() +
                                                  " already, for all its groups");
    }
    *out = mesh_.get();
    return {};
}

void* LocalNode::allocate(size_t bytes) {
    if (sharable_ && in_forked_child())
        return nullptr; // the pages belong to the parent
    if (holds_any_.load(std::memory_order_relaxed))
        release_held();
    int64_t offset = heap_arena_->take(std::max<int64_t>(int64_t(bytes), 1));
    return offset < 0 ? nullptr : heap_base() + offset;
}

void LocalNode::deallocate(void* data) {
    if (data == nullptr || (sharable_ && in_forked_child()))
        return; // in a forked child the pages are the parent's, and still in use there
    if (holds_any_.load(std::memory_order_relaxed)) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            held_.push_back(data);
        }
        return release_held();
    }
    give_back(data);
}

void LocalNode::give_back(void* data) {
    int64_t offset = heap_offset(data);
    int64_t bytes = heap_arena_->size_of(offset);
    COLLECTIVES_CHECK(bytes > 0);
    // The pages go back to the system and read as zero afterwards, as a fresh allocation promises.
    madvise(data, size_t(bytes), sharable_ ? MADV_REMOVE : MADV_DONTNEED);
    heap_arena_->give(offset);
}

bool LocalNode::owns(const void* data, size_t bytes) const {
    int64_t offset = heap_offset(data);
    return offset >= 0 && offset + int64_t(bytes) <= config_.heap_bytes;
}

void LocalNode::give_later(std::vector<int64_t> offsets, std::function<bool()> unused) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        garbage_.push_back({std::move(offsets), std::move(unused)});
    }
    collect_garbage();
}

void LocalNode::hold(const void* data, int64_t bytes, std::function<bool()> unused) {
    std::lock_guard<std::mutex> lock(mutex_);
    int64_t begin = heap_offset(data);
    holds_.push_back({begin, begin + bytes, std::move(unused)});
    holds_any_.store(true, std::memory_order_relaxed);
}

/// Gives back what was freed and is held no more.
void LocalNode::release_held() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(holds_, [](const Hold& each) { return each.unused(); });
    std::erase_if(held_, [this](void* data) {
        int64_t begin = heap_offset(data), end = begin + heap_arena_->size_of(begin);
        for (const Hold& each : holds_)
            if (each.begin < end && begin < each.end)
                return false;
        give_back(data);
        return true;
    });
    holds_any_.store(!holds_.empty() || !held_.empty(), std::memory_order_relaxed);
}

void LocalNode::collect_garbage() {
    if (holds_any_.load(std::memory_order_relaxed))
        release_held();
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(garbage_, [this](const Garbage& each) {
        if (!each.unused())
            return false;
        for (int64_t offset : each.offsets) arena_->give(offset);
        return true;
    });
}

PeerProcess* LocalNode::find(const Uuid& uuid) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = peers_.find(uuid);
    return it == peers_.end() ? nullptr : it->second.get();
}

PeerProcess* LocalNode::add_peer(std::unique_ptr<PeerProcess> peer) {
    std::lock_guard<std::mutex> lock(mutex_);
    PeerProcess* raw = peer.get();
    peers_[raw->uuid] = std::move(peer);
    return raw;
}

RingRange LocalNode::ring_for(const Uuid& uuid, int n_peers) {
    std::lock_guard<std::mutex> lock(mutex_);
    RingRange& ring = rings_[uuid];
    if (ring.offset >= 0)
        return ring;
    int64_t bytes = 64 << 10; // half a MiB for all, so that staging keeps the rest
    while (bytes > (4 << 10) && bytes * n_peers > (512 << 10)) bytes >>= 1;
    ring.offset = arena_->take(bytes);
    ring.bytes = ring.offset < 0 ? 0 : bytes;
    return ring;
}

Status LocalNode::attach_inproc(const Hello& hello, int n_peers) {
    std::lock_guard<std::mutex> lock(g_inproc_mutex);
    auto it = inproc_nodes().find(hello.uuid);
    if (it == inproc_nodes().end())
        return Status(Code::peer_failed, "an inproc rank is gone before its group formed");
    LocalNode* other = it->second;
    if (other->died_)
        return Status(Code::peer_failed, "process " + std::to_string(hello.pid) + " on host " + hello.host +
                                             " died before its group formed");
    auto peer = std::make_unique<PeerProcess>();
    peer->uuid = hello.uuid;
    peer->pid = hello.pid;
    peer->inproc = true;
    peer->host = hello.host;
    peer->segment = other->segment_.mapping;
    peer->heap = other->heap_.mapping;
    peer->bell_fd = fcntl(other->bell_fd_, F_DUPFD_CLOEXEC, 0);
    peer->tx = ring_for(hello.uuid, n_peers);
    peer->rx = other->ring_for(hello_.uuid, n_peers);
    add_peer(std::move(peer));
    return {};
}

Status LocalNode::finish_handshake(int socket, const Uuid& uuid, const std::string& host, int64_t deadline_ns,
                                   int n_peers) {
    AttachInfo mine, theirs;
    RingRange ring = ring_for(uuid, n_peers);
    mine = {config_.segment_bytes,
            config_.heap_bytes,
            ring.offset,
            ring.bytes,
            getpid(),
            {segment_.fd, heap_.fd, bell_fd_}};
    COLLECTIVES_RETURN_IF_ERROR(exchange_attach(socket, mine, &theirs, deadline_ns));
    auto peer = std::make_unique<PeerProcess>();
    peer->uuid = uuid;
    peer->host = host;
    Status mapped = map_shared(theirs.fds[0], theirs.segment_bytes, &peer->segment);
    if (mapped.ok())
        mapped = map_shared(theirs.fds[1], theirs.heap_bytes, &peer->heap);
    close(theirs.fds[0]);
    close(theirs.fds[1]);
    peer->bell_fd = theirs.fds[2]; // closed with the node, or by the kernel
    bool good = mapped.ok() && theirs.segment_bytes >= 4096 && peer->header()->magic == kSegmentMagic &&
                std::memcmp(peer->header()->uuid, uuid.data(), uuid.size()) == 0;
    COLLECTIVES_RETURN_IF_ERROR(confirm_attach(socket, good, deadline_ns));
    madvise(peer->segment->base(), size_t(peer->segment->bytes()), MADV_DONTFORK);
    ucred credentials{};
    socklen_t length = sizeof credentials;
    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length);
    peer->pid = credentials.pid != 0 ? credentials.pid : theirs.pid;
    peer->tx = ring;
    peer->rx = {theirs.ring_offset, theirs.ring_bytes};
    if (credentials.pid != 0)
        peer->life_fd = int(syscall(SYS_pidfd_open, credentials.pid, 0));
    if (peer->life_fd < 0) // another pid namespace or an old kernel: the socket itself tells when the peer ends
        peer->life_fd = dup(socket);
    add_peer(std::move(peer));
    wake_watcher();
    return {};
}

Status LocalNode::connect_shm(const Hello& hello, int n_peers, int64_t deadline_ns) {
    int socket = connect_to(hello.uuid, deadline_ns);
    if (socket < 0)
        return system_error("cannot reach process " + std::to_string(hello.pid) + " on host " + hello.host +
                            " over its unix socket");
    Uuid other{};
    Status status = prove(socket, hello_.uuid, config_.secret + hello.share, false, deadline_ns, &other);
    if (status.ok() && other != hello.uuid)
        status = Status(Code::peer_failed, "shm handshake: another process answered");
    if (status.ok())
        status = finish_handshake(socket, hello.uuid, hello.host, deadline_ns, n_peers);
    close(socket);
    return status;
}

Status LocalNode::accept_shm(int n_peers, int64_t deadline_ns) {
    pollfd p{listener_, POLLIN, 0};
    int n = poll(&p, 1, 20);
    if (n <= 0)
        return {};
    int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0)
        return {};
    // A stranger costs its own connection and at most this much of our time.
    int64_t patience = std::min(deadline_ns, deadline_after(monotonic_ns(), 2 * kSecond));
    Uuid other{};
    Status status = prove(socket, hello_.uuid, config_.secret + hello_.share, true, patience, &other);
    if (status.ok() && find(other) == nullptr)
        status = finish_handshake(socket, other, hello_.host, deadline_ns, n_peers);
    close(socket);
    if (!status.ok())
        std::fprintf(stderr, "collectives: refused a connection: %s\n", status.message().c_str());
    return {};
}

Status LocalNode::attach_all(const std::vector<Hello>& hellos, int64_t deadline_ns, std::vector<PeerProcess*>* peers) {
    std::lock_guard<std::mutex> lock(attach_mutex_);
    int n_peers = std::max(1, int(hellos.size()) - 1);
    // The greater uuid connects to the smaller one: chains of waiting always go down, so they end.
    for (const Hello& hello : hellos) {
        if (hello.uuid == hello_.uuid || find(hello.uuid) != nullptr)
            continue;
        if (std::string why = why_not_local(hello_, hello); !why.empty())
            return Status(Code::unsupported, "no transport reaches process " + std::to_string(hello.pid) + " on host " +
                                                 hello.host + ": " + why);
        if (!sharable_)
            COLLECTIVES_RETURN_IF_ERROR(attach_inproc(hello, n_peers));
        else if (hello_.uuid > hello.uuid)
            COLLECTIVES_RETURN_IF_ERROR(connect_shm(hello, n_peers, deadline_ns));
    }
    for (const Hello& hello : hellos)
        while (hello.uuid != hello_.uuid && find(hello.uuid) == nullptr) {
            if (monotonic_ns() >= deadline_ns)
                return Status(Code::timeout, "process " + std::to_string(hello.pid) + " on host " + hello.host +
                                                 " did not attach to our shared memory before the deadline");
            COLLECTIVES_RETURN_IF_ERROR(accept_shm(n_peers, deadline_ns));
        }
    peers->clear();
    for (const Hello& hello : hellos) peers->push_back(hello.uuid == hello_.uuid ? nullptr : find(hello.uuid));
    return {};
}

void LocalNode::ring_always(const Bell& bell) {
    bell.header->bell.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(&bell.header->bell);
    uint64_t one = 1;
    if (bell.header->pollers.load(std::memory_order_seq_cst) != 0 && write(bell.fd, &one, sizeof one) < 0)
        return; // the counter is full: they wake
}

void LocalNode::wake_watcher() {
    uint64_t one = 1;
    if (watch_event_ >= 0 && write(watch_event_, &one, sizeof one) < 0)
        return; // the counter is full: it will wake
}

/// The watcher thread: sleeps until a peer's process ends, then marks it and wakes whoever waits here.
void LocalNode::watch() {
    while (!stopping_.load()) {
        std::vector<pollfd> fds{{watch_event_, POLLIN, 0}};
        std::vector<PeerProcess*> watched{nullptr};
        {
            std::lock_guard<std::mutex> lock(mutex_);
            for (auto& [uuid, peer] : peers_)
                if (peer->life_fd >= 0 && !peer->dead.load()) {
                    fds.push_back({peer->life_fd, POLLIN, 0});
                    watched.push_back(peer.get());
                }
        }
        if (poll(fds.data(), fds.size(), -1) < 0)
            continue;
        uint64_t count;
        if (fds[0].revents != 0 && read(watch_event_, &count, sizeof count) < 0)
            continue;
        for (size_t i = 1; i < fds.size(); ++i)
            if (fds[i].revents != 0) {
                watched[i]->dead.store(true, std::memory_order_seq_cst);
                ring_always(bell());
            }
    }
}

void LocalNode::simulate_death() {
    if (sharable_) // nothing less looks the same to the watchers of other processes
        kill(getpid(), SIGKILL);
    std::lock_guard<std::mutex> lock(g_inproc_mutex);
    died_ = true;
    for (auto& [uuid, node] : inproc_nodes())
        if (PeerProcess* peer = node->find(hello_.uuid)) {
            peer->dead.store(true, std::memory_order_seq_cst);
            ring_always(node->bell());
        }
}

bool LocalNode::pull(const PeerProcess& peer, void* dst, uint64_t address, int64_t bytes) {
    if (peer.inproc) {
        std::memcpy(dst, reinterpret_cast<const void*>(address), size_t(bytes));
        return true;
    }
    while (bytes > 0) {
        iovec local{dst, size_t(bytes)}, remote{reinterpret_cast<void*>(address), size_t(bytes)};
        ssize_t n = process_vm_readv(pid_t(peer.pid), &local, 1, &remote, 1, 0);
        if (n <= 0)
            return false;
        dst = static_cast<uint8_t*>(dst) + n;
        address += uint64_t(n);
        bytes -= n;
    }
    return true;
}

bool LocalNode::can_pull(const PeerProcess& peer) {
    uint64_t magic = 0;
    return pull(peer, &magic, peer.header()->self, sizeof magic) && magic == kSegmentMagic;
}

std::string LocalNode::death_text(const PeerProcess& peer) {
    return "process " + std::to_string(peer.pid) + " on host " + peer.host;
}

} // namespace collectives
