// Running collectives: inline on the caller's thread, or from the queue; and how a communicator fails.
#include "engine/communicator_impl.h"

#include <algorithm>
#include <cstring>

#include <unistd.h>

#include "base/check.h"
#include "engine/wire_join.h"
#include "transport/transports.h"

namespace collectives {
namespace {

std::atomic<InterruptCheck> g_interrupt_check{nullptr};

/// Before anything was measured (tuning.cc), and for `on` and `off`.
kernels::Store staging_store(const std::string& wish) {
    return wish == "on" ? kernels::Store::streaming : kernels::Store::plain;
}

/// From what size on an operation's buffers push each other out of the last-level cache, which all ranks share: output
/// that is written past the cache sooner is missing there afterwards.
int64_t beyond_the_cache(int world_size) {
    constexpr int64_t kUnknown = 4 << 20, kLeast = 1 << 20, kMost = 64 << 20;
    int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return cache <= 0 ? kUnknown : std::clamp(cache / (8 * world_size), kLeast, kMost);
}

std::string seconds(int64_t ns) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g s", double(ns) / 1e9);
    return text;
}

} // namespace

void set_interrupt_check(InterruptCheck check) { g_interrupt_check.store(check); }

Status Communicator::create(Node& node, const CommunicatorConfig& config, Bootstrap& bootstrap,
                            std::shared_ptr<Communicator>* out) {
    if (in_forked_child())
        return Status(Code::closed, "collectives cannot be used in a child made by fork()");
    if (config.world_size < 1 || config.rank < 0 || config.rank >= config.world_size)
        return Status(Code::invalid_argument, "rank " + std::to_string(config.rank) + " is outside a group of " +
                                                  std::to_string(config.world_size) + " ranks");
    if (!config.algorithm.empty() && find_algorithm(config.algorithm.c_str()) == nullptr &&
        find_wire_algorithm(config.algorithm.c_str()) == nullptr && config.algorithm != TwoLevel::kName)
        return Status(Code::invalid_argument, "no algorithm is named '" + config.algorithm + "'");
    auto& local = static_cast<LocalNode&>(node);
    if (config.transports != std::vector<std::string>{"tcp"})
        COLLECTIVES_RETURN_IF_ERROR(check_transports(config.transports, local.transport()));
    std::unique_ptr<Group> group;
    int64_t deadline = deadline_after(monotonic_ns(), config.timeout_ns);
    const bool watches = !bootstrap.watch && !config.global_ranks.empty();
    if (watches) // a rank that another group here knows to be dead is not waited for
        bootstrap.watch = [&] { return ProgressEngine::of(local).death_among(config.global_ranks); };
    const bool only_tcp = config.transports == std::vector<std::string>{"tcp"};
    std::vector<Hello> hellos;
    std::unique_ptr<WireGroup> wire;
    std::unique_ptr<TwoLevel> two_level;
    Status joined = Group::create(local, config, bootstrap, deadline, only_tcp, &group, &hellos);
    if (joined.ok() && group == nullptr) {
        joined = check_transports(config.transports, "tcp");
        if (joined.ok())
            joined = form_wire_group(local, ProgressEngine::of(local), config, hellos, bootstrap, deadline, &wire);
        if (joined.ok() && !only_tcp)
            joined = form_two_levels(local, config, hellos, *wire, bootstrap, deadline, &two_level);
        group = Group::alone(local, config);
    }
    if (watches)
        bootstrap.watch = nullptr;
    COLLECTIVES_RETURN_IF_ERROR(joined);
    std::vector<int> everyone(static_cast<size_t>(config.world_size));
    for (int q = 0; q < config.world_size; ++q) everyone[size_t(q)] = q;
    std::unique_ptr<Bootstrap> own;
    if (config.world_size > 1)
        own = bootstrap.sub("group", everyone);
    auto communicator = std::make_shared<CommunicatorImpl>(local, config, std::move(group), std::move(wire),
                                                           std::move(two_level), std::move(own));
    COLLECTIVES_RETURN_IF_ERROR(communicator->open());
    *out = std::move(communicator);
    return {};
}

Status CommunicatorImpl::death_among(const std::vector<int>& global_ranks) const {
    for (int q = 0; q < int(config_.global_ranks.size()); ++q)
        if (fabric_.is_dead(q) && std::count(global_ranks.begin(), global_ranks.end(), config_.global_ranks[size_t(q)]))
            return Status(Code::peer_failed, fabric_.name_of(q) + " of group '" + config_.name + "' died");
    return {};
}

CommunicatorImpl::CommunicatorImpl(LocalNode& node, CommunicatorConfig config, std::unique_ptr<Group> group,
                                   std::unique_ptr<WireGroup> wire, std::unique_ptr<TwoLevel> two_level,
                                   std::unique_ptr<Bootstrap> bootstrap)
    : node_(node), engine_(ProgressEngine::of(node)), config_(std::move(config)), bootstrap_(std::move(bootstrap)),
      fabric_(std::move(group), std::move(wire), std::move(two_level), find_wire_algorithm(config_.algorithm.c_str()),
              config_.deterministic),
      timeout_ns_(config_.timeout_ns) {
    planner_.forced = config_.algorithm.empty() ? nullptr : find_algorithm(config_.algorithm.c_str());
    planner_.deterministic = config_.deterministic;
    planner_.two_levels = config_.algorithm == TwoLevel::kName;
    planner_.stage_store = staging_store(node.config().streaming_stores);
    if (config_.piece_bytes > 0) {
        planner_.wire_piece_bytes = config_.piece_bytes;
        planner_.chunk_bytes = 8 * config_.piece_bytes;
    }
    if (config_.mapped_from_bytes > 0)
        planner_.mapped_from_bytes = config_.mapped_from_bytes;
    planner_.streaming_from_bytes =
        config_.streaming_from_bytes > 0 ? config_.streaming_from_bytes : beyond_the_cache(config_.world_size);
}

Status CommunicatorImpl::open() {
    engine_.set_local_ranks(fabric_.two_level() != nullptr ? fabric_.two_level()->local().size()
                                                           : fabric_.local().size());
    MessageGroup group{fabric_.id(), config_.name, config_.rank, {}, config_.global_ranks};
    for (int q = 0; q < config_.world_size; ++q) {
        int slot = Messenger::kNoPeer;
        if (TcpLink* link = fabric_.wire() != nullptr ? fabric_.wire()->member(q).link : nullptr)
            COLLECTIVES_RETURN_IF_ERROR(engine_.slot_of(link, &slot));
        else if (PeerProcess* peer = fabric_.wire() != nullptr ? nullptr : fabric_.local().member(q).process)
            COLLECTIVES_RETURN_IF_ERROR(engine_.slot_of(peer, &slot));
        group.slots.push_back(slot);
    }
    if (config_.world_size == 1)
        group.id = reinterpret_cast<uint64_t>(this);
    message_id_ = group.id;
    COLLECTIVES_RETURN_IF_ERROR(engine_.messenger().add_communicator(std::move(group)));
    engine_.introduce(message_id_, std::static_pointer_cast<CommunicatorImpl>(shared_from_this()));
    return agree();
}

CommunicatorImpl::~CommunicatorImpl() {
    if (!in_forked_child())
        engine_.forget(message_id_);
}

int64_t CommunicatorImpl::timeout_or_default(int64_t timeout_ns) const {
    return timeout_ns < 0 ? timeout_ns_.load(std::memory_order_relaxed) : timeout_ns;
}

void CommunicatorImpl::disown() {
    owned_.store(false, std::memory_order_release);
    if (queued_.load(std::memory_order_acquire) != 0)
        engine_.ring_own(); // somebody queued while we held it
}

Status CommunicatorImpl::check_usable() const {
    if (failed_.load(std::memory_order_acquire))
        return error();
    if (in_forked_child())
        return Status(Code::closed, "group '" + config_.name + "' cannot be used in a child made by fork()");
    return {};
}

Status CommunicatorImpl::run(const Call& call, int64_t timeout_ns) {
    COLLECTIVES_RETURN_IF_ERROR(check_usable());
    COLLECTIVES_RETURN_IF_ERROR(validate(call));
    if (config_.world_size == 1)
        return run_alone(call);
    if (queued_.load(std::memory_order_acquire) != 0 || !try_own())
        return start(call, timeout_ns)->wait();
    if (queued_.load(std::memory_order_acquire) != 0) { // somebody was faster: stay behind it
        disown();
        return start(call, timeout_ns)->wait();
    }
    Status status = run_inline(call, timeout_ns);
    disown();
    return status;
}

Status CommunicatorImpl::run_inline(const Call& call, int64_t timeout_ns) {
    if (int dead = fabric_.dead_member(); dead >= 0)
        return fail(Status(Code::peer_failed, fabric_.name_of(dead) + " died"), dead, &call);
    fabric_.begin(call, planner_, issued_.fetch_add(1, std::memory_order_relaxed) + 1, timeout_or_default(timeout_ns));
    record_counts(call, fabric_.sequence());
    Operation::State state = fabric_.advance();
    if (state == Operation::State::blocked) {
        Status trouble_found;
        operation_started_ns_ = monotonic_ns();
        int64_t timeout = timeout_or_default(timeout_ns), deadline = deadline_after(operation_started_ns_, timeout);
        bool moved = engine_.wait(
            [&] {
                uint64_t mark = fabric_.mark();
                state = fabric_.advance();
                return state != Operation::State::blocked ? Look::done
                       : fabric_.mark() != mark           ? Look::moved
                                                          : Look::nothing;
            },
            [&] {
                trouble_found = trouble(deadline, timeout);
                return !trouble_found.ok();
            },
            engine_.spin_ns(), fabric_.wire() != nullptr);
        if (!moved) {
            fabric_.abandon();
            return trouble_found;
        }
    }
    if (state == Operation::State::failed)
        return operation_failed();
    return {};
}

Status CommunicatorImpl::run_alone(const Call& call) {
    issued_.fetch_add(1, std::memory_order_relaxed);
    auto start_of = [](const Blocks& b) { return b.ptrs != nullptr ? b.ptrs[0] : b.base; };
    int64_t count = call.kind == Collective::barrier ? 0 : call.in.count_of(0);
    void *in = start_of(call.in), *out = start_of(call.out);
    if (count == 0)
        return {};
    bool reducing = call.kind == Collective::all_reduce || call.kind == Collective::reduce ||
                    call.kind == Collective::reduce_scatter;
    if (reducing && call.op == ReduceOp::premul_sum)
        kernels::scale_fn(call.dtype)(out, in, count, call.factor_re, call.factor_im);
    else if (in != out)
        kernels::copy_fn(kernels::Store::plain)(out, in, count * int64_t(size_of(call.dtype)));
    return {};
}

/// What is wrong, looked at now and then while an operation waits. The caller owns the operation. Fails on trouble.
Status CommunicatorImpl::trouble(int64_t deadline_ns, int64_t timeout_ns) {
    if (failed_.load(std::memory_order_acquire))
        return error();
    int culprit = -1;
    if (Status status = fabric_.peer_trouble(true, &culprit); !status.ok()) {
        // A peer that ran out of time may only have waited for this rank, which waits for the one to blame.
        if (const std::string names = waited_for(); status.code() == Code::timeout && fabric_.wire() && !names.empty())
            status = Status(status.code(), status.message() + "; this rank was still waiting for " + names);
        return fail(status, culprit, fabric_.active() ? &fabric_.call() : nullptr);
    }
    if (monotonic_ns() >= deadline_ns)
        return fail(timeout_error(timeout_ns), -1, nullptr);
    if (fabric_.active())
        look_for_interrupt(own_call(fabric_.call()));
    return error();
}

void CommunicatorImpl::look_for_interrupt(const std::string& what) {
    if (InterruptCheck check = g_interrupt_check.load(); check != nullptr && check())
        (void)fail(Status(Code::interrupted, what + " of group '" + config_.name + "' was interrupted by a signal on " +
                                                 fabric_.name_of(config_.rank)),
                   config_.rank, nullptr);
}

/// A call of this rank with its number: "all_reduce of float32[4], sum #3".
std::string CommunicatorImpl::own_call(const Call& call) const {
    const uint64_t number = fabric_.active() ? fabric_.sequence() : sequence() + 1;
    return describe(call, config_.rank) + " #" + std::to_string(number);
}

/// The ranks that the operation under way waits for, by name; empty where there is none.
std::string CommunicatorImpl::waited_for() {
    std::string text;
    if (fabric_.active())
        for (int q : fabric_.missing_ranks()) text += (text.empty() ? "" : ", ") + fabric_.name_of(q);
    return text;
}

Status CommunicatorImpl::timeout_error(int64_t timeout_ns) {
    std::string text = own_call(fabric_.call()) + " of group '" + config_.name + "' on " +
                       fabric_.name_of(config_.rank) + " timed out after " + seconds(timeout_ns) +
                       ": still waiting for " + waited_for();
    text += ", silent for " + seconds(monotonic_ns() - operation_started_ns_) +
            "; a rank that is stopped, slow, or calls something else keeps the others waiting";
    return Status(Code::timeout, text);
}

/// Becomes, or repeats, the first failure; shows it to the peers. `call`: says in what it was met here.
Status CommunicatorImpl::fail(const Status& cause, int culprit, const Call* call) {
    return call == nullptr ? fail_in("", "", cause, culprit)
                           : fail_in(own_call(*call), " on " + fabric_.name_of(config_.rank), cause, culprit);
}

/// The same: this rank says "<what> of group '<name>'<where>: <cause>", and what a peer said of the same call is not said
/// twice. The peers are shown the cause alone.
Status CommunicatorImpl::fail_in(const std::string& what, const std::string& where, const Status& cause, int culprit) {
    std::string text = cause.message();
    if (!what.empty()) {
        const std::string said = " failed: " + what + " "; // by a peer: see Group::known_failure
        if (const size_t at = text.find(said); at != std::string::npos)
            text.erase(at + std::strlen(" failed: "), what.size() + 1);
        text = what + " of group '" + config_.name + "'" + where + ": " + text;
    }
    Status first;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (failure_.ok()) {
            failure_ = Status(cause.code(), text);
            fabric_.publish_failure(cause.code(), culprit, cause.message());
        }
        first = failure_;
        failed_.store(true, std::memory_order_release);
    }
    engine_.messenger().fail_communicator(message_id_, first);
    engine_.ring_own();
    return first;
}

Status CommunicatorImpl::error() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
}

void CommunicatorImpl::abort(const std::string& reason) {
    if (in_forked_child())
        return;
    (void)fail(Status(Code::aborted,
                      "group '" + config_.name + "' was aborted on " + fabric_.name_of(config_.rank) + ": " + reason),
               config_.rank, nullptr);
}

/// Waits until the collectives of this rank have ended and its messages have left; fails the group at the deadline.
Status CommunicatorImpl::drain(int64_t timeout_ns) {
    ProgressEngine::Helping helping(engine_);
    auto left = [this] {
        return !failed_.load() && (queued_.load() != 0 || engine_.messenger().unsent(message_id_) != 0 ||
                                   (fabric_.wire() != nullptr && fabric_.wire()->messages_waiting()));
    };
    const int64_t deadline = deadline_after(monotonic_ns(), timeout_ns);
    const bool drained = engine_.wait(
        [&] {
            const bool moved = engine_.pass();
            return !left() ? Look::done : moved ? Look::moved : Look::nothing;
        },
        [&] {
            engine_.look_around();
            look_around();
            return monotonic_ns() >= deadline;
        });
    if (drained || !left())
        return {};
    const std::string what =
        queued_.load() != 0 ? "operations were still running" : oldest_message() + " had not ended";
    return fail(
        Status(Code::timeout, "closing group '" + config_.name + "': " + what + " after " + seconds(timeout_ns)),
        config_.rank, nullptr);
}

Status CommunicatorImpl::close(int64_t timeout_ns) {
    if (in_forked_child() || closed_.exchange(true))
        return {};
    const Status status = failed_.load() || config_.world_size == 1 ? Status() : drain(timeout_ns);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (failure_.ok())
            failure_ = Status(Code::closed, "group '" + config_.name + "' was closed on this rank");
        failed_.store(true, std::memory_order_release);
        fabric_.publish_failure(Code::closed, config_.rank, "closed");
    }
    engine_.forget(message_id_);
    engine_.ring_own();
    return status;
}

} // namespace collectives
