// Inputs, expected results and calls.
#include "work.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace collectives::sim {
namespace {

enum Stream : uint64_t { kElements = 2000, kMessages = 3000, kBlocks = 4000, kPairs = 5000 };

int64_t element(uint64_t salt, int rank, int64_t i) {
    return int64_t(random_bits(salt, kElements + uint64_t(rank), uint64_t(i)) & 7);
}

template <class T> void put(uint8_t* base, int64_t i, int64_t value) {
    T typed = T(value);
    std::memcpy(base + i * int64_t(sizeof typed), &typed, sizeof typed);
}
template <class T> int64_t get(const uint8_t* base, int64_t i) {
    T typed;
    std::memcpy(&typed, base + i * int64_t(sizeof typed), sizeof typed);
    return int64_t(typed);
}
void store(DType dtype, uint8_t* base, int64_t i, int64_t value) {
    switch (dtype) {
    case DType::i32: return put<int32_t>(base, i, value);
    case DType::i64: return put<int64_t>(base, i, value);
    case DType::f32: return put<float>(base, i, value);
    case DType::f64: return put<double>(base, i, value);
    default: return put<uint8_t>(base, i, value);
    }
}
int64_t load(DType dtype, const uint8_t* base, int64_t i) {
    switch (dtype) {
    case DType::i32: return get<int32_t>(base, i);
    case DType::i64: return get<int64_t>(base, i);
    case DType::f32: return get<float>(base, i);
    case DType::f64: return get<double>(base, i);
    default: return get<uint8_t>(base, i);
    }
}

/// What rank `rank` of a collective reads and must write.
class Shape {
  public:
    Shape(const Action& action, uint64_t salt, int rank, int n) : a_(action), salt_(salt), rank_(rank), n_(n) {}

    int64_t block(int b) const {
        return a_.uneven ? int64_t(random_bits(salt_, kBlocks, uint64_t(b)) % uint64_t(a_.count + 1)) : a_.count;
    }
    int64_t pair(int from, int to) const {
        return int64_t(random_bits(salt_, kPairs + uint64_t(from), uint64_t(to)) % uint64_t(a_.count + 1));
    }
    int64_t before(int b) const {
        int64_t sum = 0;
        for (int i = 0; i < b; ++i) sum += block(i);
        return sum;
    }
    int64_t in_elements() const {
        switch (a_.kind) {
        case Collective::reduce_scatter: return before(n_);
        case Collective::all_gather: return block(rank_);
        case Collective::all_to_all: return pairs(rank_, true, n_);
        case Collective::scatter: return rank_ == a_.root ? n_ * a_.count : 0;
        case Collective::barrier: return 0;
        default: return a_.count;
        }
    }
    int64_t out_elements() const {
        switch (a_.kind) {
        case Collective::reduce_scatter: return block(rank_);
        case Collective::all_gather: return before(n_);
        case Collective::all_to_all: return pairs(rank_, false, n_);
        case Collective::gather: return rank_ == a_.root ? n_ * a_.count : 0;
        case Collective::reduce: return rank_ == a_.root ? a_.count : 0;
        case Collective::barrier: return 0;
        default: return a_.count;
        }
    }
    int64_t expected(int64_t i) const {
        switch (a_.kind) {
        case Collective::all_reduce:
        case Collective::reduce: return reduced(i);
        case Collective::reduce_scatter: return reduced(before(rank_) + i);
        case Collective::broadcast: return element(salt_, a_.root, i);
        case Collective::gather: return element(salt_, int(i / a_.count), i % a_.count);
        case Collective::scatter: return element(salt_, a_.root, rank_ * a_.count + i);
        case Collective::all_gather: {
            int q = 0;
            for (; i >= block(q); ++q) i -= block(q);
            return element(salt_, q, i);
        }
        case Collective::all_to_all: {
            int q = 0;
            for (; i >= pair(q, rank_); ++q) i -= pair(q, rank_);
            int64_t offset = 0;
            for (int r = 0; r < rank_; ++r) offset += pair(q, r);
            return element(salt_, q, offset + i);
        }
        case Collective::barrier: break;
        }
        return 0;
    }

  private:
    int64_t pairs(int rank, bool sends, int until) const {
        int64_t sum = 0;
        for (int q = 0; q < until; ++q) sum += sends ? pair(rank, q) : pair(q, rank);
        return sum;
    }
    int64_t reduced(int64_t i) const {
        int64_t value = element(salt_, 0, i);
        for (int q = 1; q < n_; ++q) {
            int64_t other = element(salt_, q, i);
            value = a_.op == ReduceOp::sum   ? value + other
                    : a_.op == ReduceOp::min ? std::min(value, other)
                                             : std::max(value, other);
        }
        return value;
    }

    const Action& a_;
    const uint64_t salt_;
    const int rank_, n_;
};

} // namespace

Memory::Memory(Node& node, int64_t bytes, bool mapped) : node_(node), mapped_(mapped) {
    if (!mapped_)
        own_.resize(size_t(bytes + 1));
    data_ = mapped_ ? static_cast<uint8_t*>(node_.allocate(size_t(bytes + 1))) : own_.data();
    if (data_ == nullptr)
        throw std::runtime_error("the simulation's shared heap is full");
}

Memory::~Memory() {
    if (mapped_)
        node_.deallocate(data_);
}

std::unique_ptr<Work> make_work(const Action& given, uint64_t salt, int rank, int n, Node& node) {
    Action a = given;
    if (a.kind != Collective::reduce_scatter && a.kind != Collective::all_gather && a.kind != Collective::all_to_all)
        a.uneven = false;
    Shape shape(a, salt, rank, n);
    auto work = std::make_unique<Work>();
    Call& call = work->call;
    call.kind = a.kind;
    call.dtype = a.dtype;
    call.op = a.op;
    call.root = a.root;
    const int64_t n_in = shape.in_elements(), n_out = shape.out_elements(), size = int64_t(size_of(a.dtype));
    const bool shares = a.in_place && (a.kind == Collective::all_reduce || a.kind == Collective::broadcast ||
                                       (a.kind == Collective::reduce && rank == a.root));
    work->in = std::make_shared<Memory>(node, std::max(n_in, shares ? n_out : 0) * size, a.mapped);
    work->out = shares ? work->in : std::make_shared<Memory>(node, n_out * size, a.mapped);
    for (int64_t i = 0; i < n_in; ++i) store(a.dtype, work->in->data(), i, element(salt, rank, i));
    call.in = Blocks{work->in->data(), nullptr, nullptr, a.count};
    call.out = Blocks{work->out->data(), nullptr, nullptr, a.count};
    for (int q = 0; q < n; ++q) {
        bool pairwise = a.kind == Collective::all_to_all;
        work->in_counts.push_back(pairwise ? shape.pair(rank, q) : shape.block(q));
        work->out_counts.push_back(pairwise ? shape.pair(q, rank) : shape.block(q));
    }
    if (a.kind == Collective::all_to_all || (a.kind == Collective::reduce_scatter && a.uneven))
        call.in.counts = work->in_counts.data();
    if (a.kind == Collective::all_to_all || (a.kind == Collective::all_gather && a.uneven))
        call.out.counts = work->out_counts.data();
    if (a.kind == Collective::reduce_scatter)
        call.out.count = n_out;
    if (a.kind == Collective::all_gather)
        call.in.count = n_in;
    work->check = [a, salt, rank, n, n_out, out = work->out]() -> std::string {
        Shape again(a, salt, rank, n);
        for (int64_t i = 0; i < n_out; ++i)
            if (int64_t is = load(a.dtype, out->data(), i), must = again.expected(i); is != must)
                return "element " + std::to_string(i) + " of " + std::to_string(n_out) + " is " + std::to_string(is) +
                       ", not " + std::to_string(must);
        return "";
    };
    return work;
}

void fill_message(uint64_t salt, int from, int which, uint8_t* data, int64_t bytes) {
    uint64_t stream = kMessages + uint64_t(from) * 100 + uint64_t(which);
    for (int64_t i = 0; i < bytes; ++i) data[i] = uint8_t(random_bits(salt, stream, uint64_t(i / 8)) >> i % 8 * 8);
}

std::string check_message(uint64_t salt, int from, int which, const uint8_t* data, int64_t bytes) {
    std::vector<uint8_t> expected(static_cast<size_t>(bytes));
    fill_message(salt, from, which, expected.data(), bytes);
    for (int64_t i = 0; i < bytes; ++i)
        if (data[i] != expected[size_t(i)])
            return "byte " + std::to_string(i) + " of message " + std::to_string(which) + " from rank " +
                   std::to_string(from) + " (" + std::to_string(bytes) + " bytes) is wrong";
    return "";
}

} // namespace collectives::sim
