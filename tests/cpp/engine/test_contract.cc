// The contract suite of the collectives: every row of the algorithm table x dtype x op x world size x length, over inproc,
// against a plain reference (rank order, accumulated in the kernels' width by the scalar rules of the dtype table). A new
// row of the table is covered without a change here.
#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "algorithms/algorithm.h"
#include "algorithms/program.h"
#include "engine/rank_threads.h"
#include "kernels/kernels.h"

using namespace collectives;
using collectives::testing::RankOptions;
using collectives::testing::run_ranks;

namespace {

using Bytes = std::vector<uint8_t>;

/// What the suite needs of a row, of either table.
struct Row {
    const char* name;
    Collective kind;
    bool mapped;
    bool rank_order; // else another association: sums of the inputs are exact, products of floats are not
};
Row row_of(const Algorithm& a) { return {a.name, a.kind, a.mapped, true}; }
Row row_of(const WireAlgorithm& a) { return {a.name, a.kind, false, a.rank_order}; }

bool reduces(Collective kind) {
    return kind == Collective::all_reduce || kind == Collective::reduce_scatter || kind == Collective::reduce;
}

/// Deterministic data of (seed, rank): any bytes for moves, small exact values for reductions.
Bytes make_input(DType dtype, int64_t count, uint64_t seed, int rank, bool for_reduction) {
    std::mt19937_64 random(seed * 1000003 + uint64_t(rank));
    int64_t size = int64_t(size_of(dtype));
    Bytes data(static_cast<size_t>(count * size));
    for (size_t i = 0; i < data.size(); i += sizeof(uint64_t)) {
        const uint64_t bits = random();
        std::memcpy(data.data() + i, &bits, std::min(sizeof bits, data.size() - i));
    }
    if (!for_reduction)
        return data;
    // Positive numbers of moderate size in every float format: clear the sign, keep exponents near one.
    for (int64_t i = 0; i < count; ++i) {
        uint8_t* at = data.data() + i * size;
        switch (dtype) {
        case DType::f64: {
            double v = 1.0 + double(at[0]) / 256;
            std::memcpy(at, &v, 8);
            break;
        }
        case DType::f32: {
            float v = 1.0f + float(at[0]) / 256;
            std::memcpy(at, &v, 4);
            break;
        }
        case DType::c64: {
            float v[2] = {1.0f + float(at[0]) / 256, float(at[1]) / 256};
            std::memcpy(at, v, 8);
            break;
        }
        case DType::c128: {
            double v[2] = {1.0 + double(at[0]) / 256, double(at[1]) / 256};
            std::memcpy(at, v, 16);
            break;
        }
        case DType::f16: {
            uint16_t v = uint16_t(0x3c00 | (at[0] << 2));
            std::memcpy(at, &v, 2);
            break;
        }
        case DType::bf16: {
            uint16_t v = uint16_t(0x3f80 | (at[0] & 0x7f));
            std::memcpy(at, &v, 2);
            break;
        }
        case DType::f8e4m3fn: at[0] = uint8_t(0x38 | (at[0] & 7)); break;
        case DType::f8e5m2: at[0] = uint8_t(0x3c | (at[0] & 3)); break;
        case DType::boolean: at[0] &= 1; break;
        default: break;
        }
    }
    return data;
}

/// The reduction of all ranks' inputs in rank order.
Bytes reference(const std::vector<Bytes>& inputs, DType dtype, ReduceOp op) {
    size_t n = inputs.size();
    Bytes result(inputs[0].size());
    std::vector<Bytes> scaled = inputs;
    std::vector<const void*> sources;
    for (size_t q = 0; q < n; ++q) {
        if (op == ReduceOp::premul_sum)
            kernels::scale_fn(dtype)(scaled[q].data(), inputs[q].data(), int64_t(inputs[q].size() / size_of(dtype)),
                                     0.5 * double(q + 1), 0.0);
        sources.push_back(scaled[q].data());
    }
    void* dst = result.data();
    kernels::ReduceArgs args;
    args.divisor = op == ReduceOp::avg ? double(n) : 1.0;
    kernels::reduce_fn(op, dtype)(&dst, 1, sources.data(), int(n), int64_t(result.size() / size_of(dtype)), args);
    return result;
}

struct Case {
    const Row* row;
    DType dtype;
    ReduceOp op;
    int n;
    int64_t count; // of a block
    bool uneven;
    bool in_place;
    bool mapped;
};

std::string text_of(const Case& c) {
    return std::string(c.row->name) + " " + info(c.dtype).name + " " + name_of(c.op) + " n=" + std::to_string(c.n) +
           " count=" + std::to_string(c.count) + (c.uneven ? " uneven" : "") + (c.in_place ? " in place" : "") +
           (c.mapped ? " mapped" : "");
}

std::vector<int64_t> block_counts(const Case& c) {
    std::vector<int64_t> counts(static_cast<size_t>(c.n), c.count);
    for (int q = 0; q < c.n && c.uneven; ++q) counts[size_t(q)] = (c.count * (q + 1) * 7) % (2 * c.count + 1);
    return counts;
}
/// all_to_all: elements that q sends to r.
int64_t pair_count(const Case& c, int q, int r) {
    return c.uneven ? (c.count * (q + 2 * r + 1)) % (2 * c.count + 1) : c.count;
}

class Buffer { // ordinary memory, or the node's shared heap
  public:
    Buffer(Node& node, size_t bytes, bool mapped) : node_(node), mapped_(mapped), own_(mapped ? 0 : bytes + 64) {
        data_ = mapped ? static_cast<uint8_t*>(node.allocate(bytes + 64)) : own_.data();
    }
    ~Buffer() {
        if (mapped_)
            node_.deallocate(data_);
    }
    uint8_t* data() { return data_; }

  private:
    Node& node_;
    bool mapped_;
    Bytes own_;
    uint8_t* data_;
};

/// Runs the case on one rank and compares; returns an error text or "".
std::string run_rank(const Case& c, int r, Communicator& communicator, Node& node, uint64_t seed) {
    int64_t size = int64_t(size_of(c.dtype));
    int root = c.n - 1;
    std::vector<int64_t> counts = block_counts(c);
    int64_t total = 0;
    std::vector<int64_t> offsets;
    for (int64_t count : counts) {
        offsets.push_back(total);
        total += count;
    }
    Call call;
    call.kind = c.row->kind;
    call.dtype = c.dtype;
    call.op = c.op;
    call.root = root;
    call.factor_re = 0.5 * (r + 1);
    const int64_t* given = c.uneven ? counts.data() : nullptr;
    std::vector<Bytes> inputs;
    Bytes expected;
    bool writes = true;
    std::vector<int64_t> in_counts(size_t(c.n)), out_counts(size_t(c.n));
    int64_t in_elements = c.count, out_elements = c.count;
    switch (c.row->kind) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
        for (int q = 0; q < c.n; ++q) inputs.push_back(make_input(c.dtype, c.count, seed, q, reduces(c.row->kind)));
        expected = c.row->kind == Collective::broadcast ? inputs[size_t(root)] : reference(inputs, c.dtype, c.op);
        writes = c.row->kind != Collective::reduce || r == root;
        break;
    case Collective::reduce_scatter: {
        in_elements = total;
        out_elements = counts[size_t(r)];
        for (int q = 0; q < c.n; ++q) inputs.push_back(make_input(c.dtype, total, seed, q, true));
        Bytes all = reference(inputs, c.dtype, c.op);
        expected.assign(all.begin() + offsets[size_t(r)] * size,
                        all.begin() + (offsets[size_t(r)] + counts[size_t(r)]) * size);
        break;
    }
    case Collective::all_gather:
    case Collective::gather:
        in_elements = counts[size_t(r)];
        out_elements = total;
        for (int q = 0; q < c.n; ++q) {
            inputs.push_back(make_input(c.dtype, counts[size_t(q)], seed, q, false));
            expected.insert(expected.end(), inputs.back().begin(), inputs.back().end());
        }
        writes = c.row->kind == Collective::all_gather || r == root;
        break;
    case Collective::scatter:
        in_elements = total;
        out_elements = c.count;
        for (int q = 0; q < c.n; ++q) inputs.push_back(make_input(c.dtype, total, seed, q, false));
        expected.assign(inputs[size_t(root)].begin() + r * c.count * size,
                        inputs[size_t(root)].begin() + (r + 1) * c.count * size);
        break;
    case Collective::all_to_all: {
        in_elements = out_elements = 0;
        for (int q = 0; q < c.n; ++q) {
            in_elements += in_counts[size_t(q)] = pair_count(c, r, q);
            out_elements += out_counts[size_t(q)] = pair_count(c, q, r);
        }
        for (int q = 0; q < c.n; ++q) {
            int64_t elements = 0, before = 0;
            for (int s = 0; s < c.n; ++s) {
                before += s < r ? pair_count(c, q, s) : 0;
                elements += pair_count(c, q, s);
            }
            inputs.push_back(make_input(c.dtype, elements, seed, q, false));
            expected.insert(expected.end(), inputs.back().begin() + before * size,
                            inputs.back().begin() + (before + pair_count(c, q, r)) * size);
        }
        break;
    }
    case Collective::barrier: break;
    }
    Bytes own = inputs.empty() ? Bytes() : inputs[size_t(r)];
    Buffer in(node, size_t(std::max(in_elements, out_elements) * size), c.mapped);
    Buffer out(node, size_t(out_elements * size), c.mapped);
    if (own.size() != 0) // an empty vector has no address
        std::memcpy(in.data(), own.data(), own.size());
    std::memset(out.data(), 0xcd, size_t(out_elements * size) + 64);
    uint8_t* target = out.data();
    call.in = Blocks{in.data(), nullptr, nullptr, c.count};
    if (c.in_place && (c.row->kind == Collective::all_reduce || c.row->kind == Collective::broadcast ||
                       c.row->kind == Collective::reduce))
        target = in.data();
    if (c.in_place && c.row->kind == Collective::all_to_all && !c.uneven)
        target = in.data();
    if (c.in_place && c.row->kind == Collective::reduce_scatter)
        target = in.data() + offsets[size_t(r)] * size;
    call.out = Blocks{target, nullptr, nullptr, c.count};
    switch (c.row->kind) {
    case Collective::reduce_scatter:
        call.in.counts = given;
        call.out.count = counts[size_t(r)];
        break;
    case Collective::all_gather:
        call.in.count = counts[size_t(r)];
        call.out.counts = given;
        break;
    case Collective::all_to_all:
        if (c.uneven) {
            call.in.counts = in_counts.data();
            call.out.counts = out_counts.data();
        }
        break;
    default: break;
    }
    if (in_elements == 0) // as an empty tensor says it
        call.in.base = nullptr;
    if (out_elements == 0)
        call.out.base = nullptr;
    Status status = communicator.run(call);
    if (!status.ok())
        return status.message();
    if (!writes || c.row->kind == Collective::barrier)
        return "";
    if (expected.size() != size_t(out_elements * size))
        return "the test's own sizes are off";
    for (size_t i = 0; i < expected.size(); ++i)
        if (target[i] != expected[i])
            return "byte " + std::to_string(i) + " of " + std::to_string(expected.size()) + " differs";
    if (target == out.data())
        for (size_t i = expected.size(); i < expected.size() + 64; ++i)
            if (out.data()[i] != 0xcd)
                return "wrote beyond its output";
    return "";
}

bool private_memory = false; // mapped rows run on ordinary memory: they pull

bool can_be_uneven(Collective kind) {
    return kind == Collective::reduce_scatter || kind == Collective::all_gather || kind == Collective::all_to_all;
}

/// `covering`: a few dtypes of each kind, for the runs that vary something else than types. `counts`: other lengths, of which
/// one dtype is enough.
std::vector<Case> cases_of(const Row& row, int n, bool covering, std::vector<int64_t> counts) {
    std::vector<Case> cases;
    const bool long_ones = !counts.empty();
    if (!long_ones)
        counts = {0, 1, 13, 60 * n + 7, 3001};
    for (int d = 0; d < kDTypeCount; ++d)
        for (int o = 0; o < 9; ++o) {
            if (!reduces(row.kind) && o != 0)
                continue;
            if (reduces(row.kind) && !supports(ReduceOp(o), DType(d)))
                continue;
            if (!row.rank_order && ReduceOp(o) == ReduceOp::product && info(DType(d)).kind != DTypeKind::signed_int &&
                info(DType(d)).kind != DTypeKind::unsigned_int && info(DType(d)).kind != DTypeKind::boolean)
                continue;
            if (long_ones && (DType(d) != DType::f32 || ReduceOp(o) == ReduceOp::product))
                continue;
            if (covering && DType(d) != DType::f32 && DType(d) != DType::bf16 && DType(d) != DType::c128 &&
                DType(d) != DType::u8)
                continue;
            for (size_t k = 0; k < counts.size(); ++k) {
                bool mapped = row.mapped && !private_memory;
                bool uneven = can_be_uneven(row.kind) && (d + o + int(k)) % 2 == 0;
                cases.push_back({&row, DType(d), ReduceOp(o), n, counts[k], uneven, (d + int(k)) % 3 == 0, mapped});
            }
        }
    return cases;
}

void run_row(const Row& row, RankOptions options, bool covering, const std::vector<int>& sizes = {1, 2, 3, 5, 8},
             const std::vector<int64_t>& counts = {}) {
    if (row.name[0] != 0)
        options.algorithm = row.name;
    for (int n : sizes) {
        std::vector<Case> cases = cases_of(row, n, covering, counts);
        std::mutex mutex;
        std::string first_error;
        run_ranks(
            n,
            [&](int r, Communicator& communicator, Node& node) {
                for (size_t i = 0; i < cases.size(); ++i) {
                    std::string error = run_rank(cases[i], r, communicator, node, i);
                    if (error.empty())
                        continue;
                    std::lock_guard<std::mutex> lock(mutex);
                    if (first_error.empty())
                        first_error = text_of(cases[i]) + " rank " + std::to_string(r) + ": " + error;
                    return;
                }
            },
            options);
        CHECK_MESSAGE(first_error.empty(), first_error);
    }
}

} // namespace

TEST_CASE("every algorithm gives the reference's bits for every dtype, op, world size and length") {
    for (int i = 0; i < kAlgorithmCount; ++i) {
        CAPTURE(kAlgorithms[i]->name);
        RankOptions options;
        options.mapped_from_bytes = 1; // so that small messages take the zero-copy rows too
        run_row(row_of(*kAlgorithms[i]), options, false);
    }
}

TEST_CASE("the smallest staging grant, many pieces: still the reference's bits") {
    for (int i = 0; i < kAlgorithmCount; ++i) {
        CAPTURE(kAlgorithms[i]->name);
        RankOptions options;
        options.staging_bytes = 1024;
        run_row(row_of(*kAlgorithms[i]), options, true);
    }
}

TEST_CASE("streaming stores give the same bits") {
    RankOptions options;
    options.streaming_stores = "on";
    options.streaming_from_bytes = 1;
    for (int i = 0; i < kAlgorithmCount; ++i) run_row(row_of(*kAlgorithms[i]), options, true);
}

TEST_CASE("pulling out of private memory gives the same bits") {
    RankOptions options;
    options.pull_from_bytes = 1;
    options.staging_bytes = 1024; // and in many pieces
    for (int i = 0; i < kAlgorithmCount; ++i)
        if (kAlgorithms[i]->mapped || kAlgorithms[i]->has_table) {
            private_memory = true;
            run_row(row_of(*kAlgorithms[i]), options, true);
            private_memory = false;
        }
}

TEST_CASE("delays and reordering change no bit") {
    RankOptions options;
    options.transport = "faulty";
    options.faults.delay_probability = 0.002;
    options.faults.max_delay_ns = 50'000;
    options.faults.reorder_probability = 0.5;
    options.mapped_from_bytes = 1;
    for (int i = 0; i < kAlgorithmCount; ++i) {
        options.faults.seed = uint64_t(i);
        run_row(row_of(*kAlgorithms[i]), options, true);
    }
}

TEST_CASE("tcp: every algorithm between hosts gives the reference's bits for every dtype, op, world size and length") {
    for (int i = 0; i < kWireAlgorithmCount; ++i) {
        CAPTURE(kWireAlgorithms[i]->name);
        RankOptions options;
        options.transport = "tcp";
        run_row(row_of(*kWireAlgorithms[i]), options, false);
    }
}

/// The collectives of a group on islands, whatever runs them there.
void run_islands(const std::vector<std::string>& islands, bool covering, int64_t piece_bytes = 0,
                 const std::vector<int64_t>& counts = {}) {
    for (Collective kind :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::all_to_all,
          Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter, Collective::barrier}) {
        CAPTURE(collective_name(kind));
        RankOptions options;
        options.islands = islands;
        options.algorithm = "two_levels"; // also where they are predicted to take longer than one
        options.piece_bytes = piece_bytes;
        run_row({"", kind, false, false}, options, covering, {int(islands.size())}, counts);
    }
}

/// One host after the other, and mixed; few on one and many on another; alone beside several.
const std::vector<std::vector<std::string>> kIslands = {
    {"a", "b", "b"},
    {"a", "a", "a", "b"},
    {"a", "b", "a", "b"},
    {"a", "b", "c", "c"},
    {"a", "b", "a", "b", "a"},
    {"c", "a", "b", "b", "a", "b", "b"},
    {"a", "a", "a", "b", "b", "b", "c", "c", "c"},
};

TEST_CASE("two levels: even hosts, uneven hosts, and ranks that do not follow each other") {
    run_islands({"a", "a", "b", "b"}, false);
    for (const auto& islands : kIslands) run_islands(islands, true);
}

TEST_CASE("two levels: in many chunks, still the reference's bits") {
    run_islands({"a", "a", "b", "b"}, true, 64);
    for (const auto& islands : kIslands) run_islands(islands, true, 64);
}

TEST_CASE("two levels: long enough for every lane") {
    const std::vector<int64_t> counts = {20011, 40009, 30000, 30001};
    for (const auto& islands : kIslands) run_islands(islands, true, 0, counts);
    run_islands({"a", "a", "b", "b"}, true, 0, counts);
}

TEST_CASE("tcp: in many small pieces, still the reference's bits") {
    for (int i = 0; i < kWireAlgorithmCount; ++i) {
        CAPTURE(kWireAlgorithms[i]->name);
        RankOptions options;
        options.transport = "tcp";
        options.piece_bytes = 256;
        run_row(row_of(*kWireAlgorithms[i]), options, true);
    }
}
