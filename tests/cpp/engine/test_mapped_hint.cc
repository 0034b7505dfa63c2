// Middle-sized calls learn from each other whether all buffers lie in shared memory: the first goes through staging, the
// next are read where they are, and one in private memory goes back to staging. All with the right result.
#include <algorithm>
#include <atomic>
#include <thread>

#include <doctest/doctest.h>

#include "engine/rank_threads.h"
#include "transport/local_node.h"

using namespace collectives;
using namespace collectives::testing;

namespace {

constexpr int kRanks = 3;
constexpr int64_t kCount = 3 * 1024; // 12 KiB of int32: from where hints are given, to where notes are always taken

struct Buffers {
    std::vector<int32_t> private_in, private_out;
    int32_t *shared_in, *shared_out;

    explicit Buffers(Node& node)
        : private_in(kCount), private_out(kCount),
          shared_in(static_cast<int32_t*>(node.allocate(kCount * sizeof(int32_t)))),
          shared_out(static_cast<int32_t*>(node.allocate(kCount * sizeof(int32_t)))) {}
};

Call call_of(Collective kind, int32_t* in, int32_t* out) {
    Call call;
    call.kind = kind;
    call.dtype = DType::i32;
    call.in = Blocks{in, nullptr, nullptr, kind == Collective::all_reduce ? kCount : kCount / kRanks};
    call.out = call.in;
    call.out.base = out;
    return call;
}

/// How many words of the segment hold this number: what was staged of it.
int64_t staged_words(Node& node, int32_t number) {
    auto& local = static_cast<LocalNode&>(node);
    constexpr int64_t header_bytes = 4096; // peers ring the bell in it
    auto* words = reinterpret_cast<const int32_t*>(local.segment_base() + header_bytes);
    return std::count(words, words + (local.config().segment_bytes - header_bytes) / int64_t(sizeof(int32_t)), number);
}

/// One call with a number of its own; returns how much of it passed through this rank's staging.
int64_t run(Communicator& communicator, Node& node, Collective kind, Buffers& buffers, bool shared, int32_t number) {
    int32_t* in = shared ? buffers.shared_in : buffers.private_in.data();
    int32_t* out = shared ? buffers.shared_out : buffers.private_out.data();
    std::fill_n(in, kCount, number);
    std::fill_n(out, kCount, -1);
    CHECK(communicator.run(call_of(kind, in, out)).ok());
    int32_t expected = kind == Collective::all_gather || kind == Collective::all_to_all ? number : kRanks * number;
    int64_t written = kind == Collective::reduce_scatter ? kCount / kRanks : kCount;
    CHECK(std::count(out, out + written, expected) == written);
    int64_t staged = staged_words(node, number);
    Call barrier; // so that nobody goes on while another still counts
    CHECK(communicator.run(barrier).ok());
    return staged;
}

} // namespace

TEST_CASE("calls of one size learn that their buffers are shared, and unlearn it") {
    for (Collective kind : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
        CAPTURE(collective_name(kind));
        run_ranks(kRanks, [&](int rank, Communicator& communicator, Node& node) {
            Buffers buffers(node);
            int32_t number = 1'000'001;
            auto next = [&](bool shared) { return run(communicator, node, kind, buffers, shared, number++); };
            CHECK(next(false) > 0);
            CHECK(next(true) > 0);  // nobody knew yet
            CHECK(next(true) == 0); // now all do
            CHECK(next(true) == 0);
            CHECK(next(rank != 1) > 0); // one rank's are not: all stage,
            CHECK(next(true) > 0);      // and have to learn it again
            CHECK(next(true) == 0);
        });
    }
}

TEST_CASE("blocks of all_to_all in shared memory are not staged from 2 KiB on") {
    run_ranks(kRanks, [](int, Communicator& communicator, Node& node) {
        Buffers buffers(node);
        CHECK(run(communicator, node, Collective::all_to_all, buffers, false, 2'000'001) > 0);
        CHECK(run(communicator, node, Collective::all_to_all, buffers, true, 2'000'002) == 0);
    });
}

TEST_CASE("memory of a zero-copy call that failed is nobody else's while a late peer may write it") {
    constexpr int64_t count = 64 << 10; // from 128 KiB on, ranks always compare notes
    std::atomic<int> step{0};
    auto wait_for = [&](int wanted) {
        while (step.load() < wanted) std::this_thread::yield();
    };
    run_ranks(2, [&](int rank, Communicator& communicator, Node& node) {
        auto make = [&](int32_t number) {
            auto* data = static_cast<int32_t*>(node.allocate(count * sizeof(int32_t)));
            std::fill_n(data, count, number);
            return data;
        };
        int32_t* data = make(1);
        Call call;
        call.kind = Collective::all_reduce;
        call.dtype = DType::i32;
        call.in = call.out = Blocks{data, nullptr, nullptr, count};
        if (rank == 0) {
            CHECK(communicator.run(call, 50 * kMillisecond).code() == Code::timeout);
            node.deallocate(data);
            int32_t* other = make(7);
            step.store(1);
            wait_for(2);
            CHECK(std::count(other, other + count, 7) == count);
            node.deallocate(other);
        } else {
            wait_for(1); // late: rank 0 has gone on to other things
            CHECK_FALSE(communicator.run(call).ok());
            node.deallocate(data);
            step.store(2);
        }
        step.fetch_add(10);
        wait_for(20);
        (void)communicator.close(kSecond);
        static_cast<LocalNode&>(node).collect_garbage();
        CHECK(node.heap_used_bytes() == 0); // and it came back once both had given up
    });
}
