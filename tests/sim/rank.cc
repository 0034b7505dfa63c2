// Taking actions, and judging what came of them.
#include "rank.h"

#include <algorithm>

namespace collectives::sim {
namespace {

constexpr int64_t kSurvivorsNotice = 4 * kSecond; // the contract's second, for a machine that does other things too
constexpr int64_t kAtOnce = 2 * kSecond;

std::string host_of(int rank) { return "host host" + std::to_string(rank); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace

void World::wrong(int rank, const std::string& what) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (first_wrong_.empty())
        first_wrong_ = "rank " + std::to_string(rank) + ": " + what;
}

std::string World::first_wrong() {
    std::lock_guard<std::mutex> lock(mutex_);
    return first_wrong_;
}

Rank::Rank(World& world, int rank)
    : world_(world), script_(world.script), rank_(rank), groups_(script_.groups.size()),
      failed_(script_.groups.size()) {}

std::string Rank::where() const {
    int at = at_.load();
    return "rank " + std::to_string(rank_) + (dead() ? " (dead)" : "") + ": " +
           (at < 0                              ? "joining the world"
            : at >= int(script_.actions.size()) ? "after the last action"
                                                : std::to_string(at) + ", " + text_of(script_.actions[size_t(at)]));
}

int Rank::index_in(int g) const {
    const auto& members = script_.groups[size_t(g)];
    auto found = std::find(members.begin(), members.end(), rank_);
    return found == members.end() ? -1 : int(found - members.begin());
}

/// Whether this rank still takes part in the group.
bool Rank::usable(int g) { return group(g) != nullptr && !failed_[size_t(g)]; }

void Rank::play() {
    testing::ThreadBootstrap bootstrap(world_.board, "world", rank_, script_.world_size);
    CommunicatorConfig config;
    config.rank = rank_;
    config.world_size = script_.world_size;
    config.timeout_ns = world_.timeout_ns();
    config.staging_bytes = script_.staging_bytes;
    config.piece_bytes = script_.piece_bytes;
    config.mapped_from_bytes = script_.mapped_from_bytes;
    config.pull_from_bytes = script_.pull_from_bytes;
    config.transports = {"faulty"};
    began_ns_ = monotonic_ns();
    judge(0, Communicator::create(world_.node(rank_), config, bootstrap, &groups_[0]), "joining the world");
    if (groups_[0] == nullptr)
        world_.incomplete.store(true);
    for (size_t i = 0; i < script_.actions.size() && !dead(); ++i) {
        at_.store(int(i));
        const Action& action = script_.actions[i];
        if (action.act == Act::wait || usable(action.group))
            take(action);
    }
    at_.store(int(script_.actions.size()));
    wait_all(); // of the dead, too: nothing may hang
    if (dead() && world_.died_ns.load() == 0)
        world_.died_ns.store(monotonic_ns());
}

void Rank::take(const Action& action) {
    began_ns_ = monotonic_ns();
    switch (action.act) {
    case Act::collective: return collective(action);
    case Act::coalesced: return coalesced(action);
    case Act::message: return message(action);
    case Act::burst: return burst(action);
    case Act::gather_any: return gather_any(action);
    case Act::wait: return wait_all();
    case Act::split: return split(action);
    case Act::close: return close(action.group);
    case Act::abort: return abort(action);
    }
}

void Rank::collective(const Action& a) {
    Communicator& communicator = *group(a.group);
    auto work = make_work(a, a.salt, communicator.rank(), communicator.world_size(), world_.node(rank_));
    Pending pending{nullptr, a.group, text_of(a), {work->in, work->out}, work->check};
    if (!a.async)
        return settle(pending, communicator.run(work->call));
    pending.request = communicator.start(work->call); // the call's arrays end here
    pending_.push_back(std::move(pending));
}

void Rank::coalesced(const Action& a) {
    Communicator& communicator = *group(a.group);
    std::vector<Call> calls;
    Pending pending{nullptr, a.group, text_of(a), {}, nullptr};
    std::vector<std::function<std::string()>> checks;
    for (int i = 0; i < a.parts; ++i) {
        Action part = a;
        part.kind = Collective::all_reduce;
        part.count = a.count / (i + 1);
        part.mapped = false;
        auto work =
            make_work(part, a.salt + uint64_t(i), communicator.rank(), communicator.world_size(), world_.node(rank_));
        calls.push_back(work->call);
        checks.push_back(work->check);
        calls.back().in.counts = calls.back().out.counts = nullptr;
        checks.push_back([in = work->in, out = work->out] { return std::string(); }); // keeps the memory
    }
    pending.check = [checks] {
        for (const auto& check : checks)
            if (std::string wrong = check(); !wrong.empty())
                return wrong;
        return std::string();
    };
    pending.request = communicator.start_coalesced(calls);
    pending_.push_back(std::move(pending));
    if (!a.async)
        wait_all(a.group);
}

RequestPtr Rank::post_send(const Action& a, uint64_t salt, int which, int to, uint32_t tag, int64_t bytes) {
    Communicator& communicator = *group(a.group);
    auto memory = std::make_shared<Memory>(world_.node(rank_), bytes, false);
    fill_message(salt, communicator.rank(), which, memory->data(), bytes);
    Pending pending{nullptr, a.group, text_of(a), {memory, nullptr}, nullptr};
    pending.request = communicator.start_send(memory->data(), bytes, to, tag);
    pending_.push_back(pending);
    return pending.request;
}

/// `from` < 0: whoever it came from, once each.
RequestPtr Rank::post_recv(const Action& a, uint64_t salt, int which, int from, int source, uint32_t tag,
                           int64_t bytes) {
    Communicator& communicator = *group(a.group);
    auto memory = std::make_shared<Memory>(world_.node(rank_), bytes, false);
    Pending pending{nullptr, a.group, text_of(a), {memory, nullptr}, nullptr};
    pending.request = communicator.start_recv(memory->data(), bytes, source, tag);
    pending.check = [request = std::weak_ptr<Request>(pending.request), salt, which, from, memory, bytes] {
        int came_from = request.lock()->source();
        if (from >= 0 && came_from != from)
            return "came from rank " + std::to_string(came_from) + ", not " + std::to_string(from);
        return check_message(salt, came_from, which, memory->data(), bytes);
    };
    pending_.push_back(pending);
    return pending.request;
}

void Rank::message(const Action& a) {
    int me = group(a.group)->rank();
    if (me == a.to)
        post_recv(a, a.salt, 0, a.from, a.any_source ? kAnySource : a.from, a.tag, a.bytes);
    if (me == a.from)
        post_send(a, a.salt, 0, a.to, a.tag, a.bytes);
    if (!a.async)
        wait_all(a.group);
}

/// Messages over three tags; the receiver takes one tag after the other.
void Rank::burst(const Action& a) {
    int me = group(a.group)->rank();
    auto tag_of = [&](int i) { return uint32_t(random_bits(a.salt, 1, uint64_t(i)) % 3); };
    auto bytes_of = [&](int i) {
        uint64_t bits = random_bits(a.salt, 2, uint64_t(i));
        return int64_t(bits % 4 == 0 ? bits >> 8 & 0x7fff : bits >> 8 & 0xff);
    };
    if (me == a.from)
        for (int i = 0; i < a.parts; ++i) post_send(a, a.salt, i, a.to, a.tag + tag_of(i), bytes_of(i));
    if (me == a.to)
        for (uint32_t tag = 0; tag < 3; ++tag)
            for (int i = 0; i < a.parts; ++i)
                if (tag_of(i) == tag)
                    post_recv(a, a.salt, i, a.from, a.from, a.tag + tag, bytes_of(i));
    if (!a.async)
        wait_all(a.group);
}

void Rank::gather_any(const Action& a) {
    Communicator& communicator = *group(a.group);
    int64_t bytes = a.bytes % 10'000;
    if (communicator.rank() != a.to) {
        post_send(a, a.salt, 0, a.to, a.tag, bytes);
    } else {
        auto seen = std::make_shared<std::vector<bool>>(size_t(communicator.world_size()));
        for (int i = 1; i < communicator.world_size(); ++i) {
            post_recv(a, a.salt, 0, -1, kAnySource, a.tag, bytes);
            Pending& pending = pending_.back();
            pending.check = [seen, request = std::weak_ptr<Request>(pending.request), check = pending.check] {
                auto first_of = (*seen)[size_t(request.lock()->source())];
                if (first_of)
                    return std::string("two messages came from rank ") + std::to_string(request.lock()->source());
                first_of = true;
                return check();
            };
        }
    }
    if (!a.async)
        wait_all(a.group);
}

void Rank::split(const Action& a) {
    int me = group(a.group)->rank(), color = a.colors[size_t(me)];
    std::shared_ptr<Communicator> made;
    Status status =
        group(a.group)->split(color, a.keys[size_t(me)], "split by action " + std::to_string(at_.load()), &made);
    abandoned_ += !status.ok();
    if (!status.ok() && group(a.group)->error().ok())
        check_words(a.group, status, text_of(a)); // the new group failed while it was made, the old one lives on
    else
        judge(a.group, status, text_of(a));
    if (!status.ok() || color < 0)
        return;
    int g = a.first_new + color;
    if (made == nullptr || made->rank() != index_in(g) || made->world_size() != int(script_.groups[size_t(g)].size()))
        return world_.wrong(rank_, text_of(a) + ": the new group is not the one that was asked for");
    groups_[size_t(g)] = std::move(made);
}

void Rank::close(int g) {
    wait_all(g);
    if (group(g) == nullptr)
        return;
    if (Status status = group(g)->close(world_.timeout_ns()); !status.ok())
        judge(g, status, "close");
    groups_[size_t(g)].reset();
}

void Rank::abort(const Action& a) {
    wait_all(a.group);
    if (!usable(a.group))
        return;
    Communicator& communicator = *group(a.group);
    if (communicator.rank() == a.from)
        communicator.abort("the script says so");
    Status status = communicator.run(Call{}); // a barrier
    if (status.ok() && communicator.world_size() > 1)
        world_.wrong(rank_, text_of(a) + ": a barrier succeeded after it");
    judge(a.group, status, text_of(a));
    if (communicator.world_size() > 1)
        check_failed(a.group);
}

void Rank::wait_all(int only) {
    std::vector<Pending> waiting;
    waiting.swap(pending_);
    for (Pending& each : waiting) {
        if (only >= 0 && each.group != only) {
            pending_.push_back(std::move(each));
            continue;
        }
        began_ns_ = monotonic_ns();
        settle(each, each.request->wait());
    }
}

void Rank::settle(Pending& pending, const Status& status) {
    if (status.ok() && pending.check)
        if (std::string wrong = pending.check(); !wrong.empty())
            world_.wrong(rank_, pending.what + ": " + wrong);
    if (status.ok())
        world_.results.fetch_add(1);
    if (status.ok())
        return;
    if (script_.pull_from_bytes >= 0 && pending.request != nullptr)
        kept_requests_.push_back(pending.request); // a peer may still read what coalesced calls were packed into
    for (auto& memory : pending.memory)
        if (memory != nullptr && !memory->mapped() && script_.pull_from_bytes >= 0)
            kept_.push_back(memory); // the rest goes at once: the engine has let go of it
    pending.memory[0] = pending.memory[1] = nullptr;
    judge(pending.group, status, pending.what);
}

/// Whether this error may be: in this group, now, with these words.
void Rank::judge(int g, const Status& status, const std::string& what) {
    if (status.ok())
        return;
    check_words(g, status, what);
    if (!failed_[size_t(g)]) {
        failed_[size_t(g)] = true;
        check_failed(g);
    }
}

void Rank::check_words(int g, const Status& status, const std::string& what) {
    world_.errors.fetch_add(1);
    const std::string text = what + ": [" + code_name(status.code()) + "] " + status.message();
    const auto& members = script_.groups[size_t(g)];
    const bool had_victim = std::find(members.begin(), members.end(), script_.victim) != members.end();
    const bool aborted = script_.aborted[size_t(g)] && contains(status.message(), "aborted");
    if (!aborted && !dead()) {
        const bool names = contains(status.message(), host_of(script_.victim));
        if (!world_.victim_is_dead())
            return world_.wrong(rank_, "nobody died, but " + text);
        if (!script_.silent && !had_victim)
            return world_.wrong(rank_, "the dead rank is not in the group, but " + text);
        if (!script_.silent && !names)
            world_.wrong(rank_, "the dead rank " + std::to_string(script_.victim) + " is not named: " + text);
        int64_t since = std::max(began_ns_, world_.died_ns.load());
        if (!script_.silent && since > 0 && monotonic_ns() - since > kSurvivorsNotice * world_.scale)
            world_.wrong(rank_, "took " + std::to_string((monotonic_ns() - since) / kMillisecond) +
                                    " ms to notice the death: " + text);
    }
}

/// After an error, every call gives the first error, at once.
void Rank::check_failed(int g) {
    if (group(g) == nullptr)
        return;
    Communicator& communicator = *group(g);
    const Status first = communicator.error();
    if (first.ok())
        return world_.wrong(rank_, "group " + std::to_string(g) + " gave an error and does not count as failed");
    const int64_t began = monotonic_ns();
    uint8_t byte = 0;
    Call call;
    call.kind = Collective::all_reduce;
    call.in = call.out = Blocks{&byte, nullptr, nullptr, 1};
    const std::pair<const char*, Status> later[] = {
        {"run", communicator.run(call)},
        {"start", communicator.start(call)->wait()},
        {"start_coalesced", communicator.start_coalesced({call, call})->wait()},
        {"start_send", communicator.start_send(&byte, 1, 0, 1)->wait()},
        {"start_recv", communicator.start_recv(&byte, 1, 0, 1)->wait()},
    };
    for (const auto& [name, status] : later)
        if (status.code() != first.code() || !contains(status.message(), first.message()))
            world_.wrong(rank_, std::string(name) + " on a failed group gives [" + code_name(status.code()) + "] " +
                                    status.message() + ", not the first error [" + code_name(first.code()) + "] " +
                                    first.message());
    if (monotonic_ns() - began > kAtOnce * world_.scale)
        world_.wrong(rank_,
                     "calls on a failed group took " + std::to_string((monotonic_ns() - began) / kMillisecond) + " ms");
}

void Rank::go_on() {
    if (dead() || world_.incomplete.load() || !world_.victim_is_dead())
        return;
    at_.store(int(script_.actions.size()));
    began_ns_ = monotonic_ns();
    std::shared_ptr<Communicator> rest;
    Status status = groups_[0]->shrink({script_.victim}, "survivors", &rest);
    if (!status.ok())
        return world_.wrong(rank_, "shrink: " + status.message());
    for (int i = 0; i < 9; ++i) { // one of each kind
        Action a;
        a.kind = Collective(i);
        a.count = 40 * i + 3;
        a.uneven = true;
        auto work = make_work(a, script_.seed + uint64_t(i), rest->rank(), rest->world_size(), world_.node(rank_));
        status = i % 2 == 0 ? rest->run(work->call) : rest->start(work->call)->wait();
        std::string wrong = status.ok() ? work->check() : status.message();
        if (!wrong.empty())
            return world_.wrong(rank_, std::string("survivors, ") + collective_name(a.kind) + ": " + wrong);
    }
    if (status = rest->close(world_.timeout_ns()); !status.ok())
        world_.wrong(rank_, "survivors, close: " + status.message());
    world_.shrinks.fetch_add(1);
}

void Rank::finish() {
    for (auto& communicator : groups_) {
        if (communicator != nullptr)
            (void)communicator->close(world_.timeout_ns());
        communicator.reset();
    }
    kept_.clear();
    kept_requests_.clear();
}

} // namespace collectives::sim
