// Running a program: what is ready goes on. See wire_operation.h.
#include "engine/wire_operation.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "engine/blocks.h"

namespace collectives {
namespace {

constexpr size_t kMostPrograms = 16;          // kept of a communicator
constexpr int64_t kLongWorkBytes = 128 << 10; // to add or copy more than this waits until the links have been served

bool reduces(Collective kind) {
    return kind == Collective::all_reduce || kind == Collective::reduce || kind == Collective::reduce_scatter;
}

constexpr uint64_t kSplitsGiven = uint64_t(1) << 48, kEvenOnly = uint64_t(1) << 49;

constexpr int kCallNumberShift = 50; // the rest: the low bits of the call's number

bool splits_given(const Call& call) { return call.in.counts != nullptr || call.out.counts != nullptr; }

uint64_t what_of(const Label& label, bool even_only) {
    const Call& call = *label.call;
    return label.sequence << kCallNumberShift | uint64_t(call.kind) | uint64_t(call.dtype) << 8 |
           uint64_t(call.op) << 16 | uint64_t(uint16_t(call.root)) << 24 | (splits_given(call) ? kSplitsGiven : 0) |
           (even_only ? kEvenOnly : 0);
}

/// What a header says was called, in words.
std::string called(const wire::FrameHeader& header) {
    Call call;
    call.kind = Collective(header.what & 0xff);
    call.dtype = DType(header.what >> 8 & 0xff);
    call.op = ReduceOp(header.what >> 16 & 0xff);
    call.root = int(header.what >> 24 & 0xffff);
    call.in.count = call.out.count = header.count;
    bool known = int(call.kind) < kCollectiveCount && size_t(call.dtype) < std::size(kDTypes) &&
                 size_t(call.op) < std::size(kReduceOps);
    return known ? describe(call, call.root) : "something unknown";
}

std::vector<int64_t> counts_of(const Blocks& blocks, int n) {
    std::vector<int64_t> counts;
    for (int q = 0; q < n; ++q) counts.push_back(blocks.count_of(q));
    return counts;
}

int sides(Collective kind, bool in, int world_size, bool root) {
    switch (kind) {
    case Collective::all_to_all: return world_size;
    case Collective::reduce_scatter: return in ? world_size : 1;
    case Collective::all_gather: return in ? 1 : world_size;
    case Collective::gather: return !in && root ? world_size : 1;
    case Collective::scatter: return in && root ? world_size : 1;
    default: return 1;
    }
}

bool same_memory(const Call& call) {
    auto start = [](const Blocks& b) { return b.ptrs != nullptr ? b.ptrs[0] : b.base; };
    return start(call.in) == start(call.out);
}

} // namespace

WireOperation::WireOperation(WireGroup& group)
    : group_(group), parked_(size_t(group.size())), sent_bytes_(size_t(group.size())),
      in_offsets_(size_t(group.size())), out_offsets_(size_t(group.size())), dsts_(size_t(group.size())),
      srcs_(size_t(group.size())) {
    std::lock_guard<std::mutex> lock(group_.hub().mesh().mutex());
    group_.set_operation(this);
    group_.hub().add(group_);
}

WireOperation::~WireOperation() {
    abandon();
    std::lock_guard<std::mutex> lock(group_.hub().mesh().mutex());
    group_.set_operation(nullptr);
}

WireOperation::Cached& WireOperation::program_for(const Call& call, const WireAlgorithm& algorithm) {
    bool root = call.root == group_.rank();
    auto in = counts_of(call.in, sides(call.kind, true, group_.size(), root));
    auto out = counts_of(call.out, sides(call.kind, false, group_.size(), root));
    for (auto& each : cache_)
        if (each->algorithm == &algorithm && each->call.dtype == call.dtype && each->call.root == call.root &&
            each->in_place == same_memory(call) && each->in_counts == in && each->out_counts == out) {
            each->used = sequence_;
            return *each;
        }
    if (cache_.size() >= kMostPrograms)
        cache_.erase(
            std::min_element(cache_.begin(), cache_.end(), [](auto& a, auto& b) { return a->used < b->used; }));
    auto made = std::make_unique<Cached>();
    made->call = call;
    made->in_counts = std::move(in);
    made->out_counts = std::move(out);
    made->in_place = same_memory(call);
    made->algorithm = &algorithm;
    made->used = sequence_;
    made->program = Program(group_.size());
    algorithm.build(shape_, made->program);
    made->program.finish();
    for (int i = 0; i < made->program.size(); ++i) made->before.push_back(made->program.action(i).n_before);
    cache_.push_back(std::move(made));
    return *cache_.back();
}

void WireOperation::begin(const Call& call, const PlannerConfig& config, const WireAlgorithm* forced, uint64_t sequence,
                          int64_t deadline_ns, const Label& label, double divisor) {
    std::lock_guard<std::mutex> lock(group_.hub().mesh().mutex());
    call_ = &call;
    label_ = label;
    sequence_ = sequence;
    deadline_ns_ = deadline_ns;
    shape_ = wire_shape_of(call, group_.rank(), group_.size(), config);
    fingerprint_ = (fingerprint_ ^ label.signature) * 0x9e3779b97f4a7c15ull;
    const WireAlgorithm* algorithm =
        planner_.choose(shape_, config.deterministic, config.wire_forced != nullptr ? config.wire_forced : forced);
    COLLECTIVES_CHECK(algorithm != nullptr);
    current_ = &program_for(call, *algorithm);
    const Program& program = current_->program;
    offsets_of(call.in, shape_.element_bytes, &in_offsets_);
    offsets_of(call.out, shape_.element_bytes, &out_offsets_);
    reduce_ = reduces(call.kind) ? kernels::reduce_fn(call.op, call.dtype, kernels::Store::plain) : nullptr;
    whole_.divisor = call.op == ReduceOp::avg ? divisor : 1.0;
    if (int64_t(scratch_.size()) < program.scratch_bytes())
        scratch_.resize(size_t(program.scratch_bytes()));
    if (shape_.scaled)
        scale_input();

    before_ = current_->before;
    done_.assign(size_t(program.size()), 0);
    ready_.clear();
    computing_.clear();
    next_computing_ = 0;
    left_ = program.size();
    frame_of_.assign(size_t(program.size()), -1);
    int n_sends = 0;
    for (int i = 0; i < program.size(); ++i)
        if (program.action(i).kind == ActionKind::send)
            frame_of_[size_t(i)] = n_sends++;
    if (int(frames_.size()) < n_sends)
        frames_.resize(size_t(n_sends));
    std::fill(sent_bytes_.begin(), sent_bytes_.end(), 0);
    for (auto& list : parked_) list.clear();
    unparked_.clear();
    active_ = true;
    for (int i = 0; i < program.size(); ++i)
        if (before_[size_t(i)] == 0)
            ready_.push_back(i);
    for (int q = 0; q < group_.size(); ++q)
        if (q != group_.rank() && (program.n_receives(q) > 0 || program.n_sends(q) > 0))
            group_.hub().mesh().want(*group_.member(q).link, deadline_ns);
    tell_begun(); // before the data: behind it, the notice would wait in the queue of the network card
    run_ready();  // what can be sent tells the other peers
    take_early();
}

/// premul_sum: the program reads the scaled input instead.
void WireOperation::scale_input() {
    int n = call_->kind == Collective::reduce_scatter ? group_.size() : 1;
    int64_t total = 0;
    for (int q = 0; q < n; ++q) total += call_->in.count_of(q) * shape_.element_bytes;
    scaled_.resize(size_t(total));
    kernels::ScaleFn scale = kernels::scale_fn(call_->dtype);
    int64_t offset = 0;
    for (int q = 0; q < n; ++q) {
        int64_t count = call_->in.count_of(q);
        if (count > 0)
            scale(scaled_.data() + offset, block_start(call_->in, q, shape_.element_bytes, in_offsets_), count,
                  call_->factor_re, call_->factor_im);
        offset += count * shape_.element_bytes;
    }
}

uint8_t* WireOperation::at(const Place& place) const {
    switch (place.buffer) {
    case Buffer::input:
        if (shape_.scaled) {
            int64_t offset = 0;
            for (int q = 0; q < place.block; ++q) offset += call_->in.count_of(q) * shape_.element_bytes;
            return const_cast<uint8_t*>(scaled_.data()) + offset + place.offset_bytes;
        }
        return block_start(call_->in, place.block, shape_.element_bytes, in_offsets_) + place.offset_bytes;
    case Buffer::output:
        return block_start(call_->out, place.block, shape_.element_bytes, out_offsets_) + place.offset_bytes;
    case Buffer::scratch: return const_cast<uint8_t*>(scratch_.data()) + place.offset_bytes;
    }
    return nullptr;
}

wire::FrameHeader WireOperation::header_for(wire::FrameKind kind) const {
    wire::FrameHeader header;
    header.kind = kind;
    header.group = group_.id();
    header.sequence = sequence_;
    header.fingerprint = fingerprint_;
    header.what = what_of(label_, current_->algorithm->even_only);
    header.count = label_.count;
    header.source = uint32_t(group_.rank());
    return header;
}

/// A rank that expects more than may come early, or has said nothing for long, says that it has begun.
void WireOperation::tell_begun() {
    const Program& program = current_->program;
    for (int q = 0; q < group_.size(); ++q) {
        WireMember& m = group_.member(q);
        if (m.link == nullptr || m.told >= sequence_ || program.n_receives(q) == 0)
            continue;
        int64_t expected = 0;
        for (int i = 0; i < program.n_receives(q); ++i)
            expected += bytes(program.action(program.receive_at(q, uint32_t(i))));
        if (expected <= kEagerBytes && sequence_ - m.told < kMostAhead / 2)
            continue;
        m.told = sequence_;
        group_.hub().mesh().post_notice(*m.link, header_for(wire::FrameKind::begun), nullptr, deadline_ns_);
    }
}

void WireOperation::take_early() {
    for (EarlyFrame& frame : group_.take_early(sequence_)) group_.take_unknown(std::move(frame));
}

// ---- the data flow ----

void WireOperation::release(int action) {
    if (--before_[size_t(action)] == 0)
        ready_.push_back(action);
}

void WireOperation::end(int action) {
    if (done_[size_t(action)])
        return;
    done_[size_t(action)] = 1;
    --left_;
    mark_.fetch_add(1, std::memory_order_relaxed);
    const Program& program = current_->program;
    const Action& a = program.action(action);
    for (int i = 0; i < a.n_after; ++i) release(program.successors(a)[i]);
}

void WireOperation::run_ready() {
    send_parked();
    bool receives = false;
    for (size_t i = 0; i < ready_.size() && failure_.ok(); ++i) {
        int number = ready_[i];
        const Action& action = current_->program.action(number);
        switch (action.kind) {
        case ActionKind::send: try_send(number); break;
        case ActionKind::receive: receives = receives || action.n_before > 0; break; // the frame finds it
        case ActionKind::copy:
        case ActionKind::reduce:
            if (bytes(action) * std::max<int>(1, action.n_srcs) > kLongWorkBytes) {
                computing_.push_back(number);
                break;
            }
            run_compute(action);
            end(number);
            break;
        }
    }
    ready_.clear();
    if (receives)
        take_early(); // some may have waited for these
}

void WireOperation::run_compute(const Action& action) {
    const Place* places = current_->program.places(action);
    if (action.count == 0)
        return;
    if (action.kind == ActionKind::copy) {
        uint8_t *to = at(places[0]), *from = at(places[1]);
        if (to != from)
            kernels::copy_fn(kernels::Store::plain)(to, from, bytes(action));
        return;
    }
    for (int i = 0; i < action.n_dsts; ++i) dsts_[size_t(i)] = at(places[i]);
    for (int i = 0; i < action.n_srcs; ++i) srcs_[size_t(i)] = at(places[action.n_dsts + i]);
    reduce_(dsts_.data(), action.n_dsts, srcs_.data(), action.n_srcs, action.count,
            action.finishes ? whole_ : partial_);
}

void WireOperation::try_send(int number) {
    const Action& action = current_->program.action(number);
    WireMember& m = group_.member(action.peer);
    int64_t& sent = sent_bytes_[size_t(action.peer)];
    // In the order in which they became ready: the receiver may be able to place a later one only when it has an earlier one.
    bool first = parked_[size_t(action.peer)].empty();
    bool may = m.begun >= sequence_ || (sent + bytes(action) <= kEagerBytes && sequence_ <= m.begun + kMostAhead);
    if (!may || !first) {
        parked_[size_t(action.peer)].push_back(number);
        return;
    }
    sent += bytes(action);
    m.told = sequence_;
    OutFrame& frame = frames_[size_t(frame_of_[size_t(number)])];
    frame.header = header_for(wire::FrameKind::data);
    frame.header.count = shown_count(action);
    frame.header.slot = action.slot;
    frame.header.length = uint64_t(bytes(action));
    frame.payload = action.count > 0 ? at(current_->program.places(action)[0]) : nullptr;
    frame.owner = this;
    frame.cookie = uint64_t(number);
    group_.hub().mesh().post(*m.link, &frame, deadline_ns_);
}

void WireOperation::has_begun(int q) {
    if (active_ && !parked_[size_t(q)].empty())
        unparked_.push_back(q);
}

/// The sends that waited for a peer to begin, before any other to it.
void WireOperation::send_parked() {
    for (int q : unparked_) {
        std::vector<int> parked = std::move(parked_[size_t(q)]);
        parked_[size_t(q)].clear();
        for (int number : parked) try_send(number);
    }
    unparked_.clear();
}

void WireOperation::frame_sent(OutFrame& frame) { end(int(frame.cookie)); }

/// What a frame shows of its sender's call: where splits are checked pairwise, the block; else what all must have alike.
int64_t WireOperation::shown_count(const Action& action) const {
    bool pairwise = call_->kind == Collective::all_to_all || call_->kind == Collective::gather ||
                    call_->kind == Collective::scatter;
    return pairwise ? action.whole : label_.count;
}

// ---- what arrives ----

Landing WireOperation::land(int q, const wire::FrameHeader& header) {
    if (!failure_.ok())
        return {Landing::discard, nullptr};
    int number = current_->program.receive_at(q, header.slot);
    const bool other_rows = ((header.what & kEvenOnly) != 0) != current_->algorithm->even_only;
    bool other_call = header.fingerprint != fingerprint_ || number < 0 || other_rows;
    const Action* action = number < 0 ? nullptr : &current_->program.action(number);
    if (other_call || done_[size_t(number)] || header.length != uint64_t(bytes(*action)) ||
        header.count != shown_count(*action)) {
        disagree(q, header);
        return {Landing::discard, nullptr};
    }
    if (before_[size_t(number)] > 0)
        return {Landing::later, nullptr};
    if (action->count == 0)
        return {Landing::place, const_cast<uint8_t*>(scratch_.data() != nullptr ? scratch_.data() : &nothing_)};
    return {Landing::place, at(current_->program.places(*action)[0])};
}

void WireOperation::landed(int q, const wire::FrameHeader& header) {
    int number = current_->program.receive_at(q, header.slot);
    if (number >= 0)
        end(number);
}

/// The peer's frame is of another call than ours, or of other splits.
void WireOperation::disagree(int q, const wire::FrameHeader& header) {
    const std::string group = " of group '" + group_.name() + "': ", me = group_.name_of(group_.rank());
    if (header.fingerprint == fingerprint_ && (current_->algorithm->even_only || (header.what & kEvenOnly) != 0))
        return disagree_about_blocks(q, header);
    if (header.fingerprint == fingerprint_)
        return fail(Status(Code::mismatch, describe(*label_.call, label_.rank) + " #" +
                                               std::to_string(label_.sequence) + group + group_.name_of(q) + " sends " +
                                               std::to_string(header.count) + " elements to " + me +
                                               ", which expects another number; the splits of "
                                               "sender and receiver must agree"),
                    q);
    fail(differs(group_, label_, q, header), q);
}

bool WireOperation::is_call(const wire::FrameHeader& header, uint64_t call_number) {
    return header.what >> kCallNumberShift == call_number << kCallNumberShift >> kCallNumberShift;
}

Status WireOperation::differs(const WireGroup& group, const Label& label, int q, const wire::FrameHeader& header) {
    const std::string me = group.name_of(group.rank()), peer = group.name_of(q);
    std::string mine = describe(*label.call, label.rank), theirs = called(header), hint;
    const bool all_to_all =
        label.call->kind == Collective::all_to_all && Collective(header.what & 0xff) == Collective::all_to_all;
    if (all_to_all) { // splits are no part of what all must have alike, but whether there are any is
        const bool given = splits_given(*label.call), given_there = (header.what & kSplitsGiven) != 0;
        mine += given ? " with splits" : " without splits";
        theirs += given_there ? " with splits" : " without splits";
        hint = given != given_there ? "; where one rank gives splits, all must"
                                    : "; without splits all ranks' blocks must have the same size";
    }
    return Status(Code::mismatch,
                  "ranks of group '" + group.name() + "' called different operations: call #" +
                      std::to_string(label.sequence) + " is " + mine + " on " + me + " but " + theirs + " on " + peer +
                      (hint.empty() ? "; every rank must make the same calls in the same order" : hint));
}

/// One of the two runs an algorithm that wants all blocks to be alike.
void WireOperation::disagree_about_blocks(int q, const wire::FrameHeader& header) {
    auto given = [](bool splits) { return std::string(splits ? "gives splits" : "gives no splits"); };
    const bool mine = splits_given(*label_.call), theirs = (header.what & kSplitsGiven) != 0;
    const std::string me = group_.name_of(group_.rank()), peer = group_.name_of(q);
    std::string detail = mine != theirs ? me + " " + given(mine) + " but " + peer + " " + given(theirs)
                                        : "the blocks of " + me + " have " + std::to_string(shape_.count) +
                                              " elements but those of " + peer + " " + std::to_string(header.count);
    fail(Status(Code::mismatch, describe(*label_.call, label_.rank) + " #" + std::to_string(label_.sequence) +
                                    " of group '" + group_.name() + "': " + detail +
                                    "; without splits all ranks' blocks must have the same size, and where one rank "
                                    "gives splits, all must"),
         q);
}

Operation::State WireOperation::advance() {
    WireHub& hub = group_.hub();
    std::unique_lock<std::mutex> lock(hub.mesh().mutex(), std::defer_lock);
    if (!hub.enter(lock))
        return Operation::State::blocked; // whoever is in there moves our frames, too
    const Operation::State state = advance_locked();
    lock.unlock();
    hub.has_left();
    return state;
}

Operation::State WireOperation::advance_locked() {
    WireHub& hub = group_.hub();
    for (;;) {
        bool moved = hub.progress();
        if (hub.others_moved(&group_) && hub.wake_sleepers)
            hub.wake_sleepers(); // what came may be all that another thread sleeps for
        if (!failure_.ok()) {
            let_go();
            return Operation::State::failed;
        }
        moved |= !ready_.empty() || !unparked_.empty();
        run_ready();
        if (!moved && next_computing_ < computing_.size()) { // nothing else to do: the links are busy meanwhile
            int number = computing_[next_computing_++];
            run_compute(current_->program.action(number));
            end(number);
            moved = true;
        }
        if (left_ == 0) {
            active_ = false;
            completed_ = sequence_;
            return Operation::State::done;
        }
        if (!moved)
            return Operation::State::blocked;
    }
}

void WireOperation::abandon() {
    std::lock_guard<std::mutex> lock(group_.hub().mesh().mutex());
    let_go();
}

/// Nothing refers to the call's memory afterwards. While the call is still there, and with the mesh's lock.
void WireOperation::let_go() {
    if (!active_)
        return;
    active_ = false;
    TcpMesh& mesh = group_.hub().mesh();
    for (int q = 0; q < group_.size(); ++q)
        if (TcpLink* link = group_.member(q).link)
            mesh.withdraw(*link, this);
    const Program& program = current_->program;
    for (int i = 0; i < program.size(); ++i) {
        const Action& action = program.action(i);
        if (action.kind != ActionKind::receive || done_[size_t(i)] || action.count == 0)
            continue;
        const uint8_t* begin = at(program.places(action)[0]);
        mesh.forget_place(begin, begin + bytes(action));
    }
}

std::vector<int> WireOperation::missing_ranks() {
    std::vector<bool> missing(static_cast<size_t>(group_.size()));
    const Program& program = current_->program;
    for (ActionKind kind : {ActionKind::receive, ActionKind::send}) {
        for (int i = 0; i < program.size(); ++i)
            if (program.action(i).kind == kind && !done_[size_t(i)])
                missing[size_t(program.action(i).peer)] = true;
        if (std::count(missing.begin(), missing.end(), true) != 0)
            break; // what is not sent waits for those that do not receive, or for what has to be received first
    }
    std::vector<int> ranks;
    for (int q = 0; q < group_.size(); ++q)
        if (missing[size_t(q)])
            ranks.push_back(q);
    return ranks;
}

void WireOperation::fail(Status status, int culprit) {
    failure_ = std::move(status);
    culprit_ = culprit;
}

} // namespace collectives
