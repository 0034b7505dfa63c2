// The machine that runs phases: write steps, publish, wait, read steps. See algorithms/step.h for the discipline and
// operation.h for the face.
#include "engine/operation.h"

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "engine/blocks.h"

namespace collectives {
namespace {

static_assert(kInlinePayloadBytes == kLinePayloadBytes);
constexpr int kMostRanks = Group::kMostRanks;
constexpr int64_t kPullPieceBytes = 128 << 10; // stays in the second-level cache

} // namespace

void Operation::begin(const Call& call, const PlannerConfig& config, uint64_t sequence, const Label* label) {
    call_ = &call;
    config_ = config;
    sequence_ = sequence;
    shape_ = shape_of(call, group_.rank(), group_.size(), group_.half_bytes(), config);
    uint64_t signature = label != nullptr ? label->signature : signature_of(call, group_.rank(), group_.size());
    fingerprint_ = (fingerprint_ ^ signature) * 0x9e3779b97f4a7c15ull;
    label != nullptr ? record_call(*label->call, label->count) : record_call(call, shape_.count);
    offsets_of(call.in, shape_.element_bytes, &in_offsets_);
    offsets_of(call.out, shape_.element_bytes, &out_offsets_);
    reduce_args_.divisor = call.op == ReduceOp::avg ? group_.size() : 1.0;
    if (call.kind == Collective::all_reduce || call.kind == Collective::reduce ||
        call.kind == Collective::reduce_scatter) {
        reduce_[0] = kernels::reduce_fn(call.op, call.dtype, kernels::Store::plain);
        reduce_[1] = kernels::reduce_fn(call.op, call.dtype, kernels::Store::streaming);
    }
    scale_ = shape_.scaled ? kernels::scale_fn(call.dtype) : nullptr;
    index_ = 0;
    stage_ = Stage::write;
    schedule_way();
    // Tries begin with notes even where they stage: so that all are timed from the same start.
    notes_ = way_ == Way::pulled || turn_.kind != Turn::use || wants_notes(shape_, config_);
    schedule_hint();
    if (notes_) {
        steps_.clear();
        steps_.wait = WaitFor::all;
        phases_ = 1;
        return;
    }
    start_algorithm();
}

void Operation::start_algorithm() {
    algorithm_ = choose_algorithm(shape_, config_);
    COLLECTIVES_CHECK(algorithm_ != nullptr);
    index_ = 0;
    if (algorithm_->has_table) {
        bool in_place = call_->in.ptrs != nullptr ||
                        call_->in.base == call_->out.base; // then peers must not read it while I overwrite it
        shape_.own_place = in_place ? 0 : place_of(call_->in, group_.size());
    }
    phases_ = algorithm_->phases(shape_);
    emit();
}

void Operation::emit() {
    steps_.clear();
    algorithm_->emit(shape_, index_, steps_);
    stage_ = Stage::write;
}

Operation::State Operation::advance() {
    for (;;) {
        if (stage_ == Stage::write) {
            if (!may_publish())
                return failure_.ok() ? State::blocked : State::failed;
            if (notes_)
                write_notes();
            else if (index_ == 0 && algorithm_->has_table)
                write_table();
            else if (index_ == 0 && hints_)
                write_hint();
            if (!run(0, steps_.n_writes()))
                return State::failed;
            group_.publish(fingerprint_);
            stage_ = Stage::wait;
        }
        if (!may_read()) {
            if (timed_ && !waited_ && first_wait_started_ns_ == 0)
                first_wait_started_ns_ = monotonic_ns();
            return failure_.ok() ? State::blocked : State::failed;
        }
        if (timed_ && !waited_)
            first_wait_is_over();
        if (notes_) {
            read_notes();
            notes_ = false;
            start_algorithm();
            if (!algorithm_->mapped)
                continue;
            stage_ = Stage::wait; // the phase of the notes is a mapped row's first: its reads may start
        } else if (index_ == 0 && algorithm_->has_table && !read_table()) {
            return State::failed;
        }
        if (hints_)
            read_hint();
        if (!run(steps_.n_writes(), steps_.n_steps()))
            return State::failed;
        if (++index_ >= phases_) {
            stage_ = Stage::idle;
            if (timed_)
                finish_way();
            return State::done;
        }
        emit();
    }
}

bool Operation::blocked_on(Group::Arrival arrival, uint64_t phase) {
    if (arrival == Group::Arrival::yes)
        return false;
    awaited_ = phase;
    if (arrival == Group::Arrival::mismatch)
        mismatch();
    return true;
}

// What I am about to overwrite, the line at least, was published two phases ago: every peer must be done with it.
bool Operation::may_publish() {
    uint64_t phase = group_.phase();
    return phase == 0 || !blocked_on(group_.all_arrived(phase), phase);
}

bool Operation::may_read() {
    uint64_t phase = group_.phase();
    switch (steps_.wait) {
    case WaitFor::nobody: return true;
    case WaitFor::root: return !blocked_on(group_.arrived(call_->root, phase), phase);
    case WaitFor::all: return !blocked_on(group_.all_arrived(phase), phase);
    }
    return true;
}

/// Where rank q stages in a phase: in the lane of the phase's half whose turn it is.
uint8_t* Operation::staging_of(int q, uint64_t phase) const {
    return group_.staging_of(q, phase) + int64_t(phase >> 1 & uint64_t(shape_.lanes - 1)) * shape_.half_bytes;
}

uint8_t* Operation::table_of(int q, uint64_t phase) const {
    return table_staging_bytes(group_.size()) == 0 ? group_.member(q).control->lines[phase & 1].payload
                                                   : staging_of(q, phase);
}

void Operation::write_table() {
    auto* table = reinterpret_cast<int64_t*>(table_of(group_.rank(), group_.phase() + 1));
    for (int q = 0; q < group_.size(); ++q) table[q] = call_->in.count_of(q);
    table[group_.size()] = shape_.own_place;
    table[group_.size() + 1] = wanted_blocks_.word();
}

bool Operation::read_table() {
    int n = group_.size(), words = table_words(n), me = group_.rank();
    matrix_.resize(size_t(n * words));
    for (int q = 0; q < n; ++q) {
        int64_t* row = &matrix_[size_t(q * words)];
        std::memcpy(row, table_of(q, group_.phase()), size_t(words) * sizeof(int64_t));
        peer_in_[size_t(q)] = peer_buffer(q, row[n]);
        int64_t expected = call_->out.count_of(q);
        if (row[me] == expected)
            continue;
        fail(Status(Code::mismatch, describe(*call_, me) + " #" + std::to_string(sequence_) + " of group '" +
                                        group_.name() + "': " + group_.name_of(q) + " sends " +
                                        std::to_string(row[me]) + " elements to rank " + std::to_string(me) +
                                        ", which expects " + std::to_string(expected) +
                                        "; the splits of sender and receiver must agree"),
             q);
        return false;
    }
    agreed_[int(call_->kind)] = WayTable(matrix_[size_t(n + 1)]); // rank 0's, from the next call on
    shape_.matrix = matrix_.data();
    phases_ = algorithm_->phases(shape_);
    emit(); // its reads depend on the table; what it writes is written
    stage_ = Stage::wait;
    return true;
}

uint8_t* Operation::resolve(const Ref& ref) const {
    uint64_t phase = group_.phase() + (stage_ == Stage::write ? 1 : 0);
    switch (ref.region) {
    case Region::input: return block_start(call_->in, ref.who, shape_.element_bytes, in_offsets_) + ref.offset_bytes;
    case Region::output: return block_start(call_->out, ref.who, shape_.element_bytes, out_offsets_) + ref.offset_bytes;
    case Region::staging: return staging_of(ref.who, phase - (ref.previous ? 1 : 0)) + ref.offset_bytes;
    case Region::line: return group_.member(ref.who).control->lines[phase & 1].payload + ref.offset_bytes;
    case Region::peer_input: return peer_in_[size_t(ref.who)].mapped + ref.offset_bytes;
    case Region::peer_output: return peer_out_[size_t(ref.who)].mapped + ref.offset_bytes;
    }
    return nullptr;
}

/// The peer's buffer that a reference means, when it has to be pulled; null when it can be read where it is.
const Operation::PeerBuffer* Operation::pulled(const Ref& ref) const {
    if (ref.region != Region::peer_input && ref.region != Region::peer_output)
        return nullptr;
    const PeerBuffer& buffer = (ref.region == Region::peer_input ? peer_in_ : peer_out_)[size_t(ref.who)];
    return buffer.mapped == nullptr ? &buffer : nullptr;
}

bool Operation::pull(const Ref& ref, void* dst, int64_t offset_bytes, int64_t bytes) {
    const PeerProcess* process = group_.member(ref.who).process;
    uint64_t address = pulled(ref)->address + uint64_t(ref.offset_bytes + offset_bytes);
    if (process == nullptr) { // our own
        std::memcpy(dst, reinterpret_cast<const void*>(address), size_t(bytes));
        return true;
    }
    if (LocalNode::pull(*process, dst, address, bytes))
        return true;
    fail(Status(Code::peer_failed, describe(*call_, group_.rank()) + " #" + std::to_string(sequence_) + " of group '" +
                                       group_.name() + "': cannot read the memory of " + group_.name_of(ref.who) +
                                       " any more: " + std::strerror(errno)),
         ref.who);
    return false;
}

bool Operation::run(int first, int last) {
    for (int i = first; i < last; ++i) {
        const Step& step = steps_.step(i);
        const Ref* refs = steps_.refs(step);
        if (step.kind == StepKind::reduce) {
            if (!run_reduction(step, refs))
                return false;
            continue;
        }
        int64_t bytes = step.count * shape_.element_bytes;
        if (pulled(refs[1]) != nullptr) {
            if (!pull(refs[1], resolve(refs[0]), 0, bytes))
                return false;
            continue;
        }
        uint8_t *dst = resolve(refs[0]), *src = resolve(refs[1]);
        bool into_staging = refs[0].region == Region::staging || refs[0].region == Region::line;
        if (scale_ != nullptr && into_staging)
            scale_(dst, src, step.count, call_->factor_re, call_->factor_im);
        else if (dst != src)
            kernels::copy_fn(step.store)(dst, src, bytes);
    }
    return true;
}

/// A reduction whose sources are all readable runs in one call. Sources that have to be pulled come piece by piece into
/// the own staging half, which no step of such a row uses.
bool Operation::run_reduction(const Step& step, const Ref* refs) {
    void* dsts[kMostRanks];
    const void* srcs[kMostRanks];
    int n_pulled = 0;
    for (int j = 0; j < step.n_dsts; ++j) dsts[j] = resolve(refs[j]);
    for (int j = 0; j < step.n_srcs; ++j) {
        bool pulls = pulled(refs[step.n_dsts + j]) != nullptr;
        srcs[j] = pulls ? nullptr : resolve(refs[step.n_dsts + j]);
        n_pulled += pulls;
    }
    kernels::ReduceFn reduce = reduce_[step.store == kernels::Store::streaming];
    if (n_pulled == 0) {
        reduce(dsts, step.n_dsts, srcs, step.n_srcs, step.count, reduce_args_);
        return true;
    }
    int64_t size = shape_.element_bytes;
    int64_t piece =
        std::max<int64_t>(64, std::min((shape_.half_bytes - kNoteRoomBytes) / n_pulled, kPullPieceBytes) / 64 * 64) /
        size;
    for (int64_t begin = 0; begin < step.count; begin += piece) {
        int64_t count = std::min(piece, step.count - begin);
        // Behind my notes, which a slower peer may still be reading.
        uint8_t* scratch = staging_of(group_.rank(), group_.phase()) + kNoteRoomBytes;
        void* piece_dsts[kMostRanks];
        const void* piece_srcs[kMostRanks];
        for (int j = 0; j < step.n_dsts; ++j) piece_dsts[j] = static_cast<uint8_t*>(dsts[j]) + begin * size;
        for (int j = 0; j < step.n_srcs; ++j) {
            if (srcs[j] != nullptr) {
                piece_srcs[j] = static_cast<const uint8_t*>(srcs[j]) + begin * size;
                continue;
            }
            if (!pull(refs[step.n_dsts + j], scratch, begin * size, count * size))
                return false;
            piece_srcs[j] = scratch;
            scratch += piece * size;
        }
        reduce(piece_dsts, step.n_dsts, piece_srcs, step.n_srcs, count, reduce_args_);
    }
    return true;
}

std::vector<int> Operation::missing_ranks() {
    std::vector<int> missing;
    for (int q = 0; q < group_.size(); ++q)
        if (q != group_.rank() && group_.arrived(q, awaited_) == Group::Arrival::no)
            missing.push_back(q);
    return missing;
}

void Operation::record_call(const Call& call, int64_t count) {
    CallRecord& record = group_.self().control->records[sequence_ % kCallRecords];
    uint64_t what = uint64_t(call.kind) | uint64_t(call.dtype) << 8 | uint64_t(call.op) << 16 |
                    uint64_t(uint16_t(call.root)) << 24 | uint64_t(call.in.counts != nullptr) << 48;
    record.what.store(what, std::memory_order_relaxed);
    record.count.store(count, std::memory_order_relaxed);
    record.sequence.store(sequence_, std::memory_order_relaxed);
}

void Operation::abandon() {
    if (active())
        hold_buffers();
    stage_ = Stage::idle;
}

Operation::State Operation::fail(Status status, int culprit) {
    failure_ = std::move(status);
    culprit_ = culprit;
    abandon();
    return State::failed;
}

/// Finds the first call in which the two differ, and says who called what.
Operation::State Operation::mismatch() {
    int q = steps_.wait == WaitFor::root && call_->root != group_.rank() ? call_->root : group_.last_blocked();
    if (q < 0)
        q = call_->root;
    // CommunicatorImpl tells who called what (mismatch.cc).
    return fail(Status(Code::mismatch, "ranks of group '" + group_.name() + "' called different operations"), q);
}

} // namespace collectives
