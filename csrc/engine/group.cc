// Forming a group: one bootstrap round that carries each rank's hello and where its memory lies, then attaching. And what
// a rank shows of itself afterwards: phases, failures.
#include "engine/group.h"

#include <algorithm>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "engine/rank_name.h"

namespace collectives {
namespace {

constexpr int64_t kSmallGroupsReserve = 2 << 20; // kept from large grants: a thousand groups of 1.8 KiB must fit
constexpr int64_t kLargestGrant = 1 << 20;
constexpr uint64_t kNever = uint64_t(1) << 62; // a phase that nobody reaches

int64_t smallest_grant(int world_size) {
    int64_t half = (world_size + 1) * 64 + ((world_size + 2) * 8 + 63) / 64 * 64;
    return std::max<int64_t>(1024, 2 * half);
}

/// Takes the page faults now, not within the first operations, whose times decide about ways. A kernel that does not know
/// the advice (before 5.14) takes them later.
void populate([[maybe_unused]] uint8_t* begin, [[maybe_unused]] int64_t bytes, [[maybe_unused]] bool own) {
#if defined(MADV_POPULATE_READ)
    auto page = uintptr_t(sysconf(_SC_PAGESIZE));
    uintptr_t first = reinterpret_cast<uintptr_t>(begin) / page * page;
    uintptr_t last = reinterpret_cast<uintptr_t>(begin) + uintptr_t(bytes);
    (void)madvise(reinterpret_cast<void*>(first), last - first, own ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
#endif
}

bool still_looking(const Member& peer) {
    if (peer.process == nullptr || peer.process->dead.load(std::memory_order_relaxed))
        return false;
    const FailureRecord& record = peer.control->failure;
    return record.owner.load(std::memory_order_acquire) == peer.owner &&
           record.code.load(std::memory_order_acquire) == 0;
}

} // namespace

Status Group::take_memory(const CommunicatorConfig& config) {
    node_.collect_garbage();
    Arena& arena = node_.arena();
    control_offset_ = arena.take(sizeof(ControlBlock));
    int64_t least = smallest_grant(config.world_size);
    // The first group, usually the whole job's, gets much; each later one an eighth of what is left, so that the tenth
    // still has some ten KiB.
    bool first = arena.free_bytes() > node_.config().segment_bytes - kLargestGrant;
    int64_t wish = (arena.free_bytes() - kSmallGroupsReserve) / (first ? 2 : 8) / 4096 * 4096;
    wish = std::clamp(std::min(wish, config.staging_bytes > 0 ? config.staging_bytes : kLargestGrant), least,
                      kLargestGrant);
    for (staging_bytes_ = wish; (staging_offset_ = arena.take(staging_bytes_)) < 0 && staging_bytes_ > least;)
        staging_bytes_ = std::max(least, staging_bytes_ / 2 / 128 * 128);
    if (control_offset_ < 0 || staging_offset_ < 0)
        return Status(Code::internal,
                      "no shared staging memory is left for group '" + name_ + "' of " +
                          std::to_string(config.world_size) + " ranks: " + std::to_string(arena.used_bytes()) +
                          " bytes are in use by other groups; destroy groups that are no longer needed");
    std::memset(node_.segment_base() + control_offset_, 0, sizeof(ControlBlock));
    return {};
}

/// Everybody's hello, and where its memory lies.
Status Group::meet(const CommunicatorConfig& config, Bootstrap& bootstrap, int64_t deadline_ns) {
    Setup mine{0, control_offset_, staging_offset_, staging_bytes_};
    static std::atomic<uint64_t> counter{0};
    std::memcpy(&mine.id, node_.hello().uuid.data(), sizeof mine.id);
    mine.id += 0x9e3779b97f4a7c15ull * ++counter;
    reinterpret_cast<ControlBlock*>(node_.segment_base() + control_offset_)
        ->failure.owner.store(mine.id, std::memory_order_release);
    std::string message(reinterpret_cast<const char*>(&mine), sizeof mine);
    std::vector<std::string> all;
    COLLECTIVES_RETURN_IF_ERROR(bootstrap.all_gather(message + node_.hello().encode(), &all, deadline_ns));
    if (int(all.size()) != config.world_size)
        return Status(Code::internal, "the bootstrap gave " + std::to_string(all.size()) + " entries for a group of " +
                                          std::to_string(config.world_size));
    hellos_.resize(all.size());
    setups_.resize(all.size());
    for (size_t q = 0; q < all.size(); ++q) {
        if (all[q].size() < sizeof(Setup))
            return Status(Code::internal, "rank " + std::to_string(q) + " announced itself with too few bytes");
        std::memcpy(&setups_[q], all[q].data(), sizeof(Setup));
        COLLECTIVES_RETURN_IF_ERROR(Hello::decode(std::string_view(all[q]).substr(sizeof(Setup)), &hellos_[q]));
    }
    id_ = setups_[0].id;
    return {};
}

Status Group::attach(int64_t deadline_ns) {
    std::vector<PeerProcess*> peers;
    COLLECTIVES_RETURN_IF_ERROR(node_.attach_all(hellos_, deadline_ns, &peers));
    int64_t agreed = staging_bytes_;
    for (const Setup& s : setups_) agreed = std::min(agreed, s.staging_bytes);
    if (agreed < staging_bytes_)
        node_.arena().trim(staging_offset_, agreed);
    staging_bytes_ = agreed / 128 * 128;
    members_.resize(peers.size());
    for (size_t q = 0; q < peers.size(); ++q) {
        Member& m = members_[q];
        m.process = peers[q];
        uint8_t* segment = m.process ? m.process->segment->base() : node_.segment_base();
        int64_t limit = m.process ? m.process->segment->bytes() : node_.config().segment_bytes;
        if (setups_[q].control_offset < 0 || setups_[q].staging_offset < 0 ||
            setups_[q].control_offset + int64_t(sizeof(ControlBlock)) > limit ||
            setups_[q].staging_offset + staging_bytes_ > limit)
            return Status(Code::internal, "rank " + std::to_string(q) + " named memory outside its segment");
        m.header = reinterpret_cast<SegmentHeader*>(segment);
        m.control = reinterpret_cast<ControlBlock*>(segment + setups_[q].control_offset);
        m.staging = segment + setups_[q].staging_offset;
        m.heap = m.process ? m.process->heap->base() : node_.heap_base();
        m.bell_fd = m.process ? m.process->bell_fd : -1;
        m.host = hellos_[q].host;
        m.pid = hellos_[q].pid;
        m.owner = setups_[q].id;
        populate(m.staging, staging_bytes_, m.process == nullptr);
    }
    return {};
}

Status Group::check_size(int ranks) {
    if (ranks <= kMostRanks)
        return {};
    return Status(Code::unsupported, "a group of " + std::to_string(ranks) +
                                         " ranks on one host: shared memory serves up to " +
                                         std::to_string(kMostRanks) + "; start fewer on each host");
}

std::unique_ptr<Group> Group::alone(LocalNode& node, const CommunicatorConfig& config) {
    std::unique_ptr<Group> group(new Group(node));
    group->name_ = config.name;
    group->members_.resize(1);
    group->members_[0].header = node.header();
    group->members_[0].heap = node.heap_base();
    group->members_[0].host = node.hello().host;
    group->members_[0].pid = node.hello().pid;
    if (config.world_size == 1)
        group->global_ranks_ = config.global_ranks;
    return group;
}

Status Group::create(LocalNode& node, const CommunicatorConfig& config, Bootstrap& bootstrap, int64_t deadline_ns,
                     bool never_local, std::unique_ptr<Group>* out, std::vector<Hello>* hellos) {
    if (config.world_size == 1) {
        *out = alone(node, config);
        return {};
    }
    std::unique_ptr<Group> group(new Group(node));
    group->rank_ = config.rank;
    group->name_ = config.name;
    group->global_ranks_ = config.global_ranks;
    group->shown_ranks_ = config.shown_ranks;
    COLLECTIVES_RETURN_IF_ERROR(group->take_memory(config));
    Status joined = group->meet(config, bootstrap, deadline_ns);
    bool local = !never_local;
    for (const Hello& hello : group->hellos_) local = local && why_not_local(group->hellos_[0], hello).empty();
    if (joined.ok() && !local) { // all come to this conclusion: nobody will look at anybody's memory
        node.arena().give(group->control_offset_);
        node.arena().give(group->staging_offset_);
        group->control_offset_ = -1;
        *hellos = std::move(group->hellos_);
        return {};
    }
    if (joined.ok())
        joined = check_size(config.world_size);
    if (joined.ok())
        joined = group->attach(deadline_ns);
    if (!joined.ok()) {
        group->abandon(joined);
        return joined;
    }
    group->hellos_.clear();
    group->setups_.clear();
    *out = std::move(group);
    return {};
}

/// This rank gives up joining, but peers may know where its control block lies and wait for it: shows them why. The
/// block itself is never taken back; who looks at it is not known.
void Group::abandon(const Status& status) {
    FailureRecord& record = reinterpret_cast<ControlBlock*>(node_.segment_base() + control_offset_)->failure;
    std::strncpy(record.text, status.message().c_str(), sizeof record.text - 1);
    record.culprit.store(rank_, std::memory_order_relaxed);
    record.code.store(uint32_t(status.code()), std::memory_order_seq_cst);
    node_.arena().give(staging_offset_);
    control_offset_ = -1;
}

std::function<bool()> Group::nobody_looks() const {
    return [peers = members_] { return std::none_of(peers.begin(), peers.end(), still_looking); };
}

Group::~Group() {
    if (control_offset_ < 0 || in_forked_child())
        return;
    if (staging_offset_ < 0) {
        node_.arena().give(control_offset_);
        return;
    }
    if (!members_.empty())
        publish_failure(Code::closed, rank_, "closed");
    // A peer may still be reading our last phase: the memory is free when all have closed, failed or ended.
    node_.give_later({control_offset_, staging_offset_}, nobody_looks());
}

void Group::publish(uint64_t fingerprint) {
    Faults* faults = node_.faults();
    if (faults != nullptr && !faults->may_publish()) {
        phase_ = kNever; // dead: it waits for peers that never come this far
        return;
    }
    uint64_t next = ++phase_;
    own_phase_[next & 1] = next;
    own_fingerprint_[next & 1] = fingerprint;
    PhaseLine& line = own_line(next);
    line.fingerprint.store(fingerprint, std::memory_order_relaxed);
    line.phase.exchange(next,
                        std::memory_order_seq_cst); // with ring(): a sleeper sees the phase, or we see the sleeper
    for (Member& m : members_)
        if (m.process != nullptr)
            LocalNode::ring({m.header, m.bell_fd});
    if (faults != nullptr)
        faults->published();
}

void Group::publish_failure(Code code, int culprit, const std::string& text) {
    if (failure_published_ || members_.size() < 2 || (node_.faults() != nullptr && node_.faults()->dead()))
        return;
    failure_published_ = true;
    FailureRecord& record = self().control->failure;
    const std::string told = told_to_peers(text, name_, name_of(rank_));
    std::strncpy(record.text, told.c_str(), sizeof record.text - 1);
    record.culprit.store(culprit, std::memory_order_relaxed);
    record.code.store(uint32_t(code), std::memory_order_seq_cst);
    for (Member& m : members_)
        if (m.process != nullptr)
            LocalNode::ring({m.header, m.bell_fd});
}

Status Group::known_failure(int* culprit) const {
    if (node_.faults() != nullptr && node_.faults()->dead()) {
        *culprit = rank_;
        return Status(Code::peer_failed, name_of(rank_) + " died of its fault plan");
    }
    if (*culprit = dead_member(); *culprit >= 0) // first: what the others show follows from it
        return Status(Code::peer_failed, name_of(*culprit) + " died");
    for (int q = 0; q < size(); ++q) {
        const Member& m = members_[size_t(q)];
        if (m.process == nullptr)
            continue;
        const FailureRecord& record = m.control->failure;
        Code code = Code(record.code.load(std::memory_order_acquire));
        if (code == Code::ok || code == Code::closed)
            continue;
        *culprit = record.culprit.load(std::memory_order_relaxed);
        const bool same_here = code == Code::mismatch || code == Code::timeout; // of the group, not of that rank alone
        return Status(same_here ? code : Code::peer_failed, told_by(q, record.text));
    }
    return {};
}

/// What a failure record says, with the rank that it happened to: the record's owner, or whom it heard it from.
std::string Group::told_by(int q, const std::string& text) const {
    for (int r = 0; r < size(); ++r)
        if (text.starts_with(name_of(r) + " failed: "))
            return text;
    return name_of(q) + " failed: " + text;
}

Status Group::peer_trouble(uint64_t phase, int* culprit) {
    COLLECTIVES_RETURN_IF_ERROR(known_failure(culprit));
    for (int q = 0; q < size(); ++q) {
        Member& m = member(q);
        if (m.process == nullptr || arrived(q, phase) != Arrival::no)
            continue;
        *culprit = q;
        if (m.header->state.load(std::memory_order_acquire) == uint32_t(ProcessState::leaving))
            return Status(Code::peer_failed, name_of(q) + " has exited");
        if (Code(m.control->failure.code.load(std::memory_order_acquire)) == Code::closed)
            return Status(Code::peer_failed, name_of(q) + " has closed the group");
    }
    return {};
}

std::string Group::name_of(int q) const {
    const Member& m = members_[size_t(q)];
    return rank_name(q, shown_ranks_, global_ranks_, m.pid, m.host);
}

} // namespace collectives
