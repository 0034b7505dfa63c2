// The machine that runs phases: write steps, publish, wait, read steps. See algorithms/step.h for the discipline and
// operation.h for the face.
#include "engine/operation.h"

#include <cstring>

#include "base/check.h"

namespace collectives {
namespace {

/// Byte offsets of blocks that follow each other; nothing to do when they are even or have pointers.
void offsets_of(const Blocks& blocks, int64_t element_bytes, std::vector<int64_t>* out) {
    if (blocks.counts == nullptr || blocks.ptrs != nullptr)
        return;
    int64_t at = 0;
    for (size_t i = 0; i < out->size(); ++i) {
        (*out)[i] = at;
        at += blocks.counts[i] * element_bytes;
    }
}

uint8_t* block_start(const Blocks& blocks, int i, int64_t element_bytes, const std::vector<int64_t>& offsets) {
    if (blocks.ptrs != nullptr)
        return static_cast<uint8_t*>(blocks.ptrs[i]);
    int64_t offset = blocks.counts != nullptr ? offsets[size_t(i)] : i * blocks.count * element_bytes;
    return static_cast<uint8_t*>(blocks.base) + offset;
}

/// Bytes of a side that lies in one piece; -1 when it does not.
int64_t whole_bytes(const Blocks& blocks, int n, int64_t element_bytes) {
    if (blocks.ptrs != nullptr)
        return -1;
    int64_t elements = 0;
    for (int i = 0; i < n; ++i) elements += blocks.count_of(i);
    return elements * element_bytes;
}

constexpr int kNoteWords = 2; // where the input and the output lie in the heap, plus one; 0: elsewhere

} // namespace

void Operation::begin(const Call& call, const PlannerConfig& config, uint64_t sequence) {
    call_ = &call;
    config_ = config;
    sequence_ = sequence;
    shape_ = shape_of(call, group_.rank(), group_.size(), group_.half_bytes(), config);
    fingerprint_ = (fingerprint_ ^ signature_of(call, group_.rank(), group_.size())) * 0x9e3779b97f4a7c15ull;
    record_call();
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
    notes_ = wants_notes(shape_, config_);
    if (notes_) {
        steps_.clear();
        steps_.wait = WaitFor::all;
        needs_writes_ = true;
        phases_ = 1;
        return;
    }
    start_algorithm();
}

void Operation::start_algorithm() {
    notes_ = false;
    algorithm_ = choose_algorithm(shape_, config_);
    COLLECTIVES_CHECK(algorithm_ != nullptr);
    index_ = 0;
    phases_ = algorithm_->phases(shape_, nullptr);
    emit();
}

void Operation::emit() {
    steps_.clear();
    algorithm_->emit(shape_, index_, steps_);
    needs_writes_ = steps_.n_writes() > 0 || (index_ == 0 && algorithm_->table_words != 0);
    stage_ = Stage::write;
}

Operation::State Operation::advance() {
    for (;;) {
        if (stage_ == Stage::write) {
            if (needs_writes_ && !may_write())
                return failure_.ok() ? State::blocked : State::failed;
            if (notes_)
                write_notes();
            else if (index_ == 0 && algorithm_->table_words != 0)
                write_table();
            run(0, steps_.n_writes());
            group_.publish(fingerprint_);
            stage_ = Stage::wait;
        }
        if (!may_read())
            return failure_.ok() ? State::blocked : State::failed;
        if (notes_) {
            read_notes();
            start_algorithm();
            continue;
        }
        if (index_ == 0 && algorithm_->table_words != 0 && !read_table())
            return State::failed;
        run(steps_.n_writes(), steps_.n_steps());
        if (++index_ >= phases_) {
            stage_ = Stage::idle;
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

bool Operation::may_write() { // what I am about to overwrite was published two phases ago
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

void Operation::write_notes() {
    LocalNode& node = group_.node();
    auto place = [&](const Blocks& blocks, int n) -> int64_t {
        int64_t bytes = whole_bytes(blocks, n, shape_.element_bytes);
        return bytes > 0 && node.owns(blocks.base, size_t(bytes)) ? node.heap_offset(blocks.base) + 1 : 0;
    };
    int n_in = call_->kind == Collective::reduce_scatter ? group_.size() : 1;
    int n_out = call_->kind == Collective::all_gather ? group_.size() : 1;
    int64_t words[kNoteWords] = {place(call_->in, n_in), place(call_->out, n_out)};
    std::memcpy(group_.staging_of(group_.rank(), group_.phase() + 1), words, sizeof words);
}

void Operation::read_notes() {
    shape_.mapped_in = shape_.mapped_out = true;
    for (int q = 0; q < group_.size(); ++q) {
        int64_t words[kNoteWords];
        std::memcpy(words, group_.staging_of(q, group_.phase()), sizeof words);
        shape_.mapped_in = shape_.mapped_in && words[0] != 0;
        shape_.mapped_out = shape_.mapped_out && words[1] != 0;
        mapped_in_[size_t(q)] = group_.member(q).heap + words[0] - 1;
        mapped_out_[size_t(q)] = group_.member(q).heap + words[1] - 1;
    }
}

void Operation::write_table() { // one word a rank: how much I send to each
    auto* table = reinterpret_cast<int64_t*>(group_.staging_of(group_.rank(), group_.phase() + 1));
    for (int q = 0; q < group_.size(); ++q) table[q] = call_->in.count_of(q);
}

bool Operation::read_table() {
    size_t n = size_t(group_.size());
    matrix_.resize(n * n);
    for (size_t q = 0; q < n; ++q)
        std::memcpy(&matrix_[q * n], group_.staging_of(int(q), group_.phase()), n * sizeof(int64_t));
    for (size_t q = 0; q < n; ++q)
        for (size_t r = 0; r < n && q == size_t(group_.rank()); ++r)
            if (matrix_[r * n + q] != call_->out.count_of(int(r))) {
                fail(Status(Code::mismatch, describe(*call_, group_.rank()) + " #" + std::to_string(sequence_) +
                                                " of group '" + group_.name() + "': " + group_.name_of(int(r)) +
                                                " sends " + std::to_string(matrix_[r * n + q]) + " elements to rank " +
                                                std::to_string(q) + ", which expects " +
                                                std::to_string(call_->out.count_of(int(r))) +
                                                "; the splits of sender and receiver must agree"),
                     int(r));
                return false;
            }
    phases_ = algorithm_->phases(shape_, matrix_.data());
    return true;
}

uint8_t* Operation::resolve(const Ref& ref) const {
    uint64_t phase = group_.phase() + (stage_ == Stage::write ? 1 : 0);
    switch (ref.region) {
    case Region::input: return block_start(call_->in, ref.who, shape_.element_bytes, in_offsets_) + ref.offset_bytes;
    case Region::output: return block_start(call_->out, ref.who, shape_.element_bytes, out_offsets_) + ref.offset_bytes;
    case Region::staging: return group_.staging_of(ref.who, phase - (ref.previous ? 1 : 0)) + ref.offset_bytes;
    case Region::line: return group_.member(ref.who).control->lines[phase & 1].payload + ref.offset_bytes;
    case Region::peer_input: return mapped_in_[size_t(ref.who)] + ref.offset_bytes;
    case Region::peer_output: return mapped_out_[size_t(ref.who)] + ref.offset_bytes;
    }
    return nullptr;
}

void Operation::run(int first, int last) {
    for (int i = first; i < last; ++i) {
        const Step& step = steps_.step(i);
        const Ref* refs = steps_.refs(step);
        if (step.kind == StepKind::copy) {
            uint8_t *dst = resolve(refs[0]), *src = resolve(refs[1]);
            bool into_staging = refs[0].region == Region::staging || refs[0].region == Region::line;
            if (scale_ != nullptr && into_staging)
                scale_(dst, src, step.count, call_->factor_re, call_->factor_im);
            else if (dst != src)
                kernels::copy_fn(step.store)(dst, src, step.count * shape_.element_bytes);
            continue;
        }
        void* dsts[64 + 1];
        const void* srcs[64 + 1];
        COLLECTIVES_CHECK(step.n_dsts <= 65 && step.n_srcs <= 65);
        for (int j = 0; j < step.n_dsts; ++j) dsts[j] = resolve(refs[j]);
        for (int j = 0; j < step.n_srcs; ++j) srcs[j] = resolve(refs[step.n_dsts + j]);
        reduce_[step.store == kernels::Store::streaming](dsts, step.n_dsts, srcs, step.n_srcs, step.count,
                                                         reduce_args_);
    }
}

std::vector<int> Operation::missing_ranks() {
    std::vector<int> missing;
    for (int q = 0; q < group_.size(); ++q)
        if (q != group_.rank() && group_.arrived(q, awaited_) == Group::Arrival::no)
            missing.push_back(q);
    return missing;
}

void Operation::record_call() {
    CallRecord& record = group_.self().control->records[sequence_ % kCallRecords];
    uint64_t what = uint64_t(call_->kind) | uint64_t(call_->dtype) << 8 | uint64_t(call_->op) << 16 |
                    uint64_t(uint16_t(call_->root)) << 24 | uint64_t(call_->in.counts != nullptr) << 48;
    record.what.store(what, std::memory_order_relaxed);
    record.count.store(shape_.count, std::memory_order_relaxed);
    record.sequence.store(sequence_, std::memory_order_relaxed);
}

Operation::State Operation::fail(Status status, int culprit) {
    failure_ = std::move(status);
    culprit_ = culprit;
    stage_ = Stage::idle;
    return State::failed;
}

/// Finds the first call in which the two differ, and says who called what.
Operation::State Operation::mismatch() {
    int q = steps_.wait == WaitFor::root && call_->root != group_.rank() ? call_->root : group_.last_blocked();
    if (q < 0)
        q = call_->root;
    auto text_of = [](const CallRecord& record) {
        uint64_t what = record.what.load(std::memory_order_relaxed);
        Call call;
        call.kind = Collective(what & 0xff);
        call.dtype = DType(what >> 8 & 0xff);
        call.op = ReduceOp(what >> 16 & 0xff);
        call.root = int(what >> 24 & 0xffff);
        call.in.count = call.out.count = record.count.load(std::memory_order_relaxed);
        return describe(call, call.root);
    };
    ControlBlock *own = group_.self().control, *other = group_.member(q).control;
    uint64_t from = sequence_ >= kCallRecords ? sequence_ - kCallRecords + 1 : 1;
    std::string detail = "their calls differ in uneven counts";
    for (uint64_t s = from; s <= sequence_; ++s) {
        const CallRecord &a = own->records[s % kCallRecords], &b = other->records[s % kCallRecords];
        if (a.sequence.load(std::memory_order_relaxed) != s || b.sequence.load(std::memory_order_relaxed) != s)
            continue;
        std::string mine = text_of(a), theirs = text_of(b);
        if (mine == theirs)
            continue;
        detail = "call #" + std::to_string(s) + " is " + mine + " on " + group_.name_of(group_.rank()) + " but " +
                 theirs + " on " + group_.name_of(q);
        break;
    }
    return fail(Status(Code::mismatch, "ranks of group '" + group_.name() + "' called different operations: " + detail +
                                           "; every rank must make the same calls in the same order"),
                q);
}

} // namespace collectives
