// Asynchronous work of a communicator: the queue of collectives, coalesced calls, messages, and new groups made of it.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "engine/communicator_impl.h"

namespace collectives {
namespace {

constexpr int64_t kPackBytes = 1 << 20; // coalesced all_reduces up to this much together travel as one

void own_arrays(Blocks* blocks, int n, std::vector<int64_t>* counts, std::vector<void*>* ptrs) {
    if (blocks->counts != nullptr) {
        counts->assign(blocks->counts, blocks->counts + n);
        blocks->counts = counts->data();
    }
    if (blocks->ptrs != nullptr) {
        ptrs->assign(blocks->ptrs, blocks->ptrs + n);
        blocks->ptrs = ptrs->data();
    }
}

int blocks_in(const Call& call, int world_size, int rank) {
    bool many = call.kind == Collective::reduce_scatter || call.kind == Collective::all_to_all ||
                (call.kind == Collective::scatter && call.root == rank);
    return many ? world_size : 1;
}
int blocks_out(const Call& call, int world_size, int rank) {
    bool many = call.kind == Collective::all_gather || call.kind == Collective::all_to_all ||
                (call.kind == Collective::gather && call.root == rank);
    return many ? world_size : 1;
}

/// Runs passes until the request has ended, and `look` now and then. What fails the communicator there ends the request in
/// the pass that follows.
template <class LookAgain>
void help_until_done(ProgressEngine& engine, CommunicatorImpl& communicator, const Request& request, LookAgain look) {
    ProgressEngine::Helping helping(engine);
    engine.wait(
        [&] {
            bool moved = !request.done() && engine.pass();
            return request.done() ? Look::done : moved ? Look::moved : Look::nothing;
        },
        [&] {
            engine.look_around();
            communicator.look_around();
            look();
            return false;
        });
}

/// The bootstrap of a group of one.
class NobodyElse final : public Bootstrap {
  public:
    Status all_gather(std::string_view mine, std::vector<std::string>* all, int64_t) override {
        all->assign(1, std::string(mine));
        return {};
    }
    std::unique_ptr<Bootstrap> sub(const std::string&, const std::vector<int>&) override {
        return std::make_unique<NobodyElse>();
    }
};

} // namespace

CollectiveRequest::CollectiveRequest(std::shared_ptr<CommunicatorImpl> communicator, const Call& call, int world_size,
                                     int64_t timeout_ns)
    : communicator_(std::move(communicator)), call_(call), timeout_ns_(timeout_ns) {
    own_arrays(&call_.in, blocks_in(call, world_size, communicator_->rank()), &in_counts_, &in_ptrs_);
    own_arrays(&call_.out, blocks_out(call, world_size, communicator_->rank()), &out_counts_, &out_ptrs_);
    started_ns_ = monotonic_ns();
    deadline_ns_ = deadline_after(started_ns_, timeout_ns);
}

void CollectiveRequest::abort() { communicator_->abort("an operation of it was aborted"); }

void CollectiveRequest::finish(const Status& status) {
    if (status.ok() && after_)
        after_();
    complete(status);
}

Status CollectiveRequest::drive_until_done(int64_t timeout_ns) {
    int64_t deadline = timeout_ns < 0 ? kForever : deadline_after(monotonic_ns(), timeout_ns);
    help_until_done(communicator_->engine_, *communicator_, *this, [&] {
        if (monotonic_ns() >= deadline && !done())
            communicator_->wait_late(*this, timeout_ns);
    });
    return status();
}

RequestPtr CommunicatorImpl::start(const Call& call, int64_t timeout_ns) {
    Status status = check_usable();
    if (status.ok())
        status = validate(call);
    if (status.ok() && config_.world_size == 1)
        status = run_alone(call);
    if (!status.ok() || config_.world_size == 1)
        return std::make_shared<EndedRequest>(status);
    auto self = std::static_pointer_cast<CommunicatorImpl>(shared_from_this());
    auto request = std::make_shared<CollectiveRequest>(self, call, config_.world_size, timeout_or_default(timeout_ns));
    enqueue(request);
    return request;
}

void CommunicatorImpl::enqueue(const std::shared_ptr<CollectiveRequest>& request) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        queue_.push_back(request);
        queued_.fetch_add(1, std::memory_order_acq_rel);
        request->sequence_ = issued_.fetch_add(1, std::memory_order_relaxed) + 1;
    }
    engine_.activate(request->communicator_);
}

bool CommunicatorImpl::advance_queue(std::vector<EndedCollective>* ended) {
    if (queue_empty() || !try_own())
        return false;
    bool moved = false;
    for (;;) {
        std::shared_ptr<CollectiveRequest> head;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (queue_.empty())
                break;
            head = queue_.front();
        }
        Operation::State state = Operation::State::failed;
        if (!failed_.load(std::memory_order_acquire)) {
            uint64_t mark = fabric_.mark();
            if (!fabric_.active()) {
                if (head->before_)
                    head->before_();
                operation_started_ns_ = monotonic_ns();
                fabric_.begin(head->call_, planner_, head->sequence(), head->timeout_ns_);
                record_counts(head->call_, head->sequence());
            }
            state = fabric_.advance();
            moved |= state != Operation::State::blocked || fabric_.mark() != mark;
            if (state == Operation::State::failed)
                (void)operation_failed();
        }
        if (state == Operation::State::blocked)
            break;
        if (state == Operation::State::failed)
            fabric_.abandon();
        ended->push_back({head, state == Operation::State::done ? Status() : error()});
        std::lock_guard<std::mutex> lock(mutex_);
        queue_.pop_front();
        queued_.fetch_sub(1, std::memory_order_acq_rel);
    }
    owned_.store(false, std::memory_order_release);
    return moved || !ended->empty();
}

void CommunicatorImpl::look_around() {
    if (failed_.load(std::memory_order_acquire))
        return;
    look_at_messages();
    look_for_closed();
    if (!try_own())
        return; // whoever drives the operation looks itself
    std::shared_ptr<CollectiveRequest> late;
    int64_t now = monotonic_ns();
    {
        std::lock_guard<std::mutex> lock(mutex_);
        for (auto& request : queue_)
            if (!late && now >= request->deadline_ns_)
                late = request;
    }
    if (fabric_.active())
        (void)trouble(late ? 0 : kForever, late ? late->timeout_ns_ : 0);
    else if (config_.world_size > 1) {
        int culprit = -1;
        if (Status status = fabric_.peer_trouble(false, &culprit); !status.ok())
            (void)fail_in(oldest_message(), " on " + fabric_.name_of(config_.rank), status, culprit);
    }
    disown();
}

RequestPtr CommunicatorImpl::start_coalesced(const std::vector<Call>& calls, int64_t timeout_ns) {
    std::vector<RequestPtr> parts;
    for (size_t first = 0; first < calls.size();) {
        size_t last = first + 1; // [first, last) can travel as one
        auto bytes_of = [&](size_t i) { return calls[i].in.count_of(0) * int64_t(size_of(calls[i].dtype)); };
        int64_t bytes = bytes_of(first);
        bool packs = calls[first].kind == Collective::all_reduce && config_.world_size > 1;
        while (packs && last < calls.size() && calls[last].kind == Collective::all_reduce &&
               calls[last].dtype == calls[first].dtype && calls[last].op == calls[first].op &&
               calls[last].factor_re == calls[first].factor_re && calls[last].factor_im == calls[first].factor_im &&
               bytes + bytes_of(last) <= kPackBytes)
            bytes += bytes_of(last++);
        parts.push_back(last - first > 1 ? start_packed(calls, first, last, timeout_ns)
                                         : start(calls[first], timeout_ns));
        first = last;
    }
    return parts.size() == 1 ? parts[0] : JointRequest::make(std::move(parts));
}

RequestPtr CommunicatorImpl::start_packed(const std::vector<Call>& calls, size_t first, size_t last,
                                          int64_t timeout_ns) {
    Status status = check_usable();
    int64_t count = 0;
    for (size_t i = first; i < last && status.ok(); ++i) {
        status = validate(calls[i]);
        count += calls[i].in.count_of(0);
    }
    if (!status.ok())
        return std::make_shared<EndedRequest>(status);
    int64_t size = int64_t(size_of(calls[first].dtype));
    auto scratch = std::make_shared<std::vector<uint8_t>>(size_t(std::max<int64_t>(1, count * size)));
    std::vector<Call> own(calls.begin() + int64_t(first), calls.begin() + int64_t(last));
    for (Call& call : own) { // flat: the caller's arrays need not live on
        for (Blocks* side : {&call.in, &call.out}) {
            side->base = side->ptrs ? side->ptrs[0] : side->base;
            side->count = side->count_of(0);
            side->ptrs = nullptr;
            side->counts = nullptr;
        }
    }
    Call packed = own[0];
    packed.in = packed.out = Blocks{scratch->data(), nullptr, nullptr, count};
    auto request = std::make_shared<CollectiveRequest>(std::static_pointer_cast<CommunicatorImpl>(shared_from_this()),
                                                       packed, config_.world_size, timeout_or_default(timeout_ns));
    request->before_ = [own, scratch, size] {
        uint8_t* at = scratch->data();
        for (const Call& call : own) {
            std::memcpy(at, call.in.base, size_t(call.in.count * size));
            at += call.in.count * size;
        }
    };
    request->after_ = [own, scratch, size] {
        const uint8_t* at = scratch->data();
        for (const Call& call : own) {
            std::memcpy(call.out.base, at, size_t(call.out.count * size));
            at += call.out.count * size;
        }
    };
    enqueue(request);
    return request;
}

MessageRequest::MessageRequest(std::shared_ptr<CommunicatorImpl> communicator, std::string what, int64_t timeout_ns)
    : communicator_(std::move(communicator)), what_(std::move(what)), timeout_ns_(timeout_ns) {
    started_ns_ = monotonic_ns();
    deadline_ns_ = deadline_after(started_ns_, timeout_ns);
}

void MessageRequest::message_done(const Status& status, int source_rank) {
    std::shared_ptr<Request> keep = std::move(self_);
    source_.store(source_rank, std::memory_order_release);
    ProgressEngine& engine = communicator_->engine_;
    complete(status.ok() ? status : communicator_->message_error(what_, status));
    engine.ring_own();
}

/// The error of a message: the communicator's first one, which it may become.
Status CommunicatorImpl::message_error(const std::string& what, Status status) {
    if (failed_.load(std::memory_order_acquire))
        return error();
    int culprit = -1;
    if (Status cause = fabric_.known_failure(&culprit); !cause.ok())
        status = cause; // the other side gave up because of a third rank: that one is the news
    return fail_in(what, " on " + fabric_.name_of(config_.rank), status, culprit);
}

void MessageRequest::abort() { communicator_->abort(what_ + " was aborted"); }

Status MessageRequest::drive_until_done(int64_t timeout_ns) {
    int64_t deadline = timeout_ns < 0 ? kForever : deadline_after(monotonic_ns(), timeout_ns);
    help_until_done(communicator_->engine_, *communicator_, *this, [&] {
        communicator_->look_for_interrupt(what_);
        if (monotonic_ns() >= std::min(deadline, deadline_ns_) && !done())
            communicator_->message_late(*this);
    });
    return status();
}

RequestPtr CommunicatorImpl::start_message(bool sends, void* data, int64_t bytes, int peer, uint32_t tag,
                                           int64_t timeout_ns) {
    std::string what = std::string(sends ? "send to rank " : "recv from ") +
                       (sends                ? std::to_string(peer)
                        : peer == kAnySource ? "any rank"
                                             : "rank " + std::to_string(peer)) +
                       " (" + std::to_string(bytes) + " bytes, tag " + std::to_string(tag) + ")";
    Status status = check_usable();
    if (status.ok() && (bytes < 0 || (data == nullptr && bytes > 0)))
        status = Status(Code::invalid_argument, what + ": no data");
    if (status.ok() && (peer >= config_.world_size || (peer < 0 && (sends || peer != kAnySource))))
        status = Status(Code::invalid_argument,
                        what + ": the group has ranks 0 to " + std::to_string(config_.world_size - 1));
    if (status.ok() && config_.world_size > 1)
        if (int dead = fabric_.dead_member(); dead >= 0)
            status = fail(Status(Code::peer_failed,
                                 what + " of group '" + config_.name + "': " + fabric_.name_of(dead) + " died"),
                          dead, nullptr);
    if (!status.ok())
        return std::make_shared<EndedRequest>(status);
    auto request = std::make_shared<MessageRequest>(std::static_pointer_cast<CommunicatorImpl>(shared_from_this()),
                                                    std::move(what), timeout_or_default(timeout_ns));
    request->self_ = request;
    if (sends)
        engine_.messenger().post_send(message_id_, peer, tag, data, bytes, request.get());
    else
        engine_.messenger().post_recv(message_id_, peer, tag, data, bytes, request.get());
    if (fabric_.wire() != nullptr && engine_.pass_links()) // sends it now
        (void)engine_.messenger().progress();
    if (!request->done()) {
        remember_message(request);
        engine_.want_messages();
    } else if (fabric_.wire() != nullptr) {
        engine_.want_messages(); // it is buffered, and may not have gone
    }
    return request;
}

RequestPtr CommunicatorImpl::start_send(const void* data, int64_t bytes, int destination, uint32_t tag,
                                        int64_t timeout_ns) {
    return start_message(true, const_cast<void*>(data), bytes, destination, tag, timeout_ns);
}

RequestPtr CommunicatorImpl::start_recv(void* data, int64_t bytes, int source, uint32_t tag, int64_t timeout_ns) {
    return start_message(false, data, bytes, source, tag, timeout_ns);
}

/// Somebody gave up waiting for a request: the operation that runs, it or one before it, says for which ranks.
void CommunicatorImpl::wait_late(const CollectiveRequest& request, int64_t timeout_ns) {
    if (try_own()) {
        if (fabric_.active())
            (void)fail(timeout_error(timeout_ns), -1, nullptr);
        disown();
    }
    (void)fail(Status(Code::timeout, "waiting for " + describe(request.call_, config_.rank) + " #" +
                                         std::to_string(request.sequence()) + " of group '" + config_.name + "' on " +
                                         fabric_.name_of(config_.rank) + " timed out"),
               -1, nullptr);
}

/// Messages under way, for their deadlines. What has ended goes when the list has doubled, and the list is looked through
/// only when the first deadline has passed, so that a message costs the same however many are outstanding.
void CommunicatorImpl::remember_message(const std::shared_ptr<MessageRequest>& request) {
    constexpr size_t kFew = 64;
    std::lock_guard<std::mutex> lock(mutex_);
    if (messages_.size() >= sweep_messages_at_) {
        std::erase_if(messages_, [](const auto& weak) {
            auto held = weak.lock();
            return !held || held->done();
        });
        sweep_messages_at_ = std::max(kFew, 2 * messages_.size());
    }
    messages_.push_back(request);
    next_message_deadline_ns_ = std::min(next_message_deadline_ns_, request->deadline_ns_);
}

/// What waits in a communicator where no collective runs.
std::string CommunicatorImpl::oldest_message() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& weak : messages_)
        if (auto request = weak.lock(); request && !request->done())
            return request->what_;
    return "an operation";
}

void CommunicatorImpl::look_at_messages() {
    std::shared_ptr<MessageRequest> late;
    int64_t now = monotonic_ns();
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (now < next_message_deadline_ns_)
            return;
        next_message_deadline_ns_ = kForever;
        for (auto& weak : messages_) {
            auto request = weak.lock();
            if (!request || request->done())
                continue;
            next_message_deadline_ns_ = std::min(next_message_deadline_ns_, request->deadline_ns_);
            if (!late && now >= request->deadline_ns_)
                late = request;
        }
    }
    if (late)
        message_late(*late);
}

/// A rank that has closed the group sends nothing more: what is received from it ends.
void CommunicatorImpl::look_for_closed() {
    std::vector<int> closed;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (messages_.empty())
            return;
        told_closed_.resize(size_t(config_.world_size));
        for (int q = 0; q < config_.world_size; ++q) {
            if (q == config_.rank || told_closed_[size_t(q)] || !fabric_.has_closed(q))
                continue;
            told_closed_[size_t(q)] = true;
            closed.push_back(q);
        }
    }
    for (int q : closed)
        engine_.messenger().peer_closed(message_id_, q,
                                        Status(Code::peer_failed, fabric_.name_of(q) + " has closed the group"));
}

void CommunicatorImpl::message_late(const MessageRequest& request) {
    (void)fail(Status(Code::timeout, request.what_ + " of group '" + config_.name + "' on " +
                                         fabric_.name_of(config_.rank) + " timed out after " +
                                         std::to_string((monotonic_ns() - request.started_ns_) / kMillisecond) +
                                         " ms: the other side did not come"),
               -1, nullptr);
}

Status CommunicatorImpl::split(int color, int key, const std::string& name, std::shared_ptr<Communicator>* out) {
    out->reset();
    int64_t mine[2] = {color, key};
    std::vector<int64_t> all(size_t(2 * config_.world_size));
    Call call;
    call.kind = Collective::all_gather;
    call.dtype = DType::i64;
    call.in = Blocks{mine, nullptr, nullptr, 2};
    call.out = Blocks{all.data(), nullptr, nullptr, 2};
    COLLECTIVES_RETURN_IF_ERROR(run(call, -1));
    uint64_t round = sequence();
    if (color < 0)
        return {};
    std::vector<int> ranks;
    for (int q = 0; q < config_.world_size; ++q)
        if (all[size_t(2 * q)] == color)
            ranks.push_back(q);
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](int a, int b) { return all[size_t(2 * a + 1)] < all[size_t(2 * b + 1)]; });
    auto watch = [this] {
        look_around();
        return error();
    };
    return subgroup("split" + std::to_string(round) + "." + std::to_string(color), ranks, name, watch, out);
}

Status CommunicatorImpl::shrink(const std::vector<int>& exclude, const std::string& name,
                                std::shared_ptr<Communicator>* out) {
    out->reset();
    std::vector<int> ranks;
    for (int q = 0; q < config_.world_size; ++q)
        if (std::find(exclude.begin(), exclude.end(), q) == exclude.end())
            ranks.push_back(q);
    for (int q : exclude)
        if (q < 0 || q >= config_.world_size || q == config_.rank)
            return Status(Code::invalid_argument, "shrink on rank " + std::to_string(config_.rank) +
                                                      ": cannot exclude rank " + std::to_string(q) + " of a group of " +
                                                      std::to_string(config_.world_size));
    auto watch = [this, &ranks]() -> Status {
        for (int q : ranks)
            if (fabric_.is_dead(q))
                return Status(Code::peer_failed, "shrinking group '" + config_.name + "': " + fabric_.name_of(q) +
                                                     " died meanwhile; exclude it too");
        return {};
    };
    return subgroup("shrink" + std::to_string(++shrinks_), ranks, name, watch, out);
}

Status CommunicatorImpl::subgroup(const std::string& key, const std::vector<int>& ranks, const std::string& name,
                                  std::function<Status()> watch, std::shared_ptr<Communicator>* out) {
    CommunicatorConfig config = config_;
    config.name = name;
    config.timeout_ns = timeout_ns_.load();
    config.world_size = int(ranks.size());
    config.rank = int(std::find(ranks.begin(), ranks.end(), config_.rank) - ranks.begin());
    config.global_ranks.clear();
    for (int q : ranks)
        config.global_ranks.push_back(config_.global_ranks.empty() ? q : config_.global_ranks[size_t(q)]);
    std::unique_ptr<Bootstrap> bootstrap;
    if (config_.world_size == 1)
        bootstrap = std::make_unique<NobodyElse>();
    else
        bootstrap = bootstrap_->sub(key, ranks);
    bootstrap->watch = std::move(watch);
    return create(node_, config, *bootstrap, out);
}

} // namespace collectives
