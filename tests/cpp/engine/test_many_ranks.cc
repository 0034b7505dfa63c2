// More ranks between hosts than one host's shared memory serves: threads over tcp on loopback, all in one process, so that
// its descriptors are those of all ranks. And what is said where there are too many on one host.
#include <doctest/doctest.h>

#include <numeric>

#include <sys/resource.h>

#include "engine/rank_threads.h"

using namespace collectives;
using collectives::testing::RankOptions;
using collectives::testing::run_ranks;

namespace {

constexpr int kRanks = 72;
constexpr rlim_t kDescriptors = 6000; // of all ranks' connections

bool enough_descriptors() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    if (limit.rlim_cur < kDescriptors && limit.rlim_max >= kDescriptors) {
        limit.rlim_cur = kDescriptors;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= kDescriptors;
}

using Values = std::vector<int32_t>;
int32_t value(int rank, int64_t i) { return int32_t(7 * rank + i % 1000); }

/// One call of `kind` with `count` elements (a block's, where there are blocks); "" or what went wrong.
std::string run_one(Communicator& communicator, Collective kind, int64_t count) {
    const int r = communicator.rank(), n = communicator.world_size(), root = n - 1;
    const bool blocks_in = kind == Collective::all_to_all || kind == Collective::scatter;
    const bool blocks_out = kind == Collective::all_to_all || kind == Collective::gather;
    Values in(size_t(count * (blocks_in ? n : 1))), out(size_t(count * (blocks_out ? n : 1)), -1);
    for (size_t i = 0; i < in.size(); ++i) in[i] = value(r, int64_t(i));
    Call call;
    call.kind = kind;
    call.dtype = DType::i32;
    call.root = root;
    call.in = Blocks{in.data(), nullptr, nullptr, count};
    call.out = Blocks{out.data(), nullptr, nullptr, count};
    if (Status status = communicator.run(call); !status.ok())
        return status.message();
    const bool rooted = kind == Collective::reduce || kind == Collective::gather;
    for (int64_t i = 0; i < int64_t(out.size()) && (!rooted || r == root); ++i) {
        int32_t expected = value(root, i);
        if (kind == Collective::all_reduce || kind == Collective::reduce)
            expected = int32_t(7 * (n * (n - 1) / 2) + n * (i % 1000));
        if (kind == Collective::gather)
            expected = value(int(i / count), i % count);
        if (kind == Collective::all_to_all)
            expected = value(int(i / count), r * count + i % count);
        if (kind == Collective::scatter)
            expected = value(root, r * count + i);
        if (out[size_t(i)] != expected)
            return std::string(collective_name(kind)) + " of " + std::to_string(count) + ": element " +
                   std::to_string(i) + " is " + std::to_string(out[size_t(i)]);
    }
    return "";
}

} // namespace

TEST_CASE("between hosts a group can have more ranks than shared memory serves") {
    if (!enough_descriptors()) {
        MESSAGE("skipped: this process may not have " << kDescriptors << " descriptors");
        return;
    }
    RankOptions options;
    options.transport = "tcp";
    options.algorithm = "reduce_exchange"; // which adds all ranks' vectors at once
    options.link_profiles = "assume";
    options.timeout_ns = 60 * kSecond;
    options.segment_bytes = 1 << 20;
    std::mutex mutex;
    std::string first;
    run_ranks(
        kRanks,
        [&](int, Communicator& communicator, Node&) {
            for (Collective kind : {Collective::reduce, Collective::all_reduce, Collective::broadcast,
                                    Collective::all_to_all, Collective::gather, Collective::scatter})
                for (int64_t count : {int64_t(1), int64_t(37), int64_t(1000)}) {
                    std::string wrong =
                        run_one(communicator, kind, kind == Collective::all_to_all ? count % 64 : count);
                    std::lock_guard<std::mutex> lock(mutex);
                    if (first.empty() && !wrong.empty())
                        first = "rank " + std::to_string(communicator.rank()) + ": " + wrong;
                    if (!first.empty())
                        return;
                }
        },
        options);
    CHECK_MESSAGE(first.empty(), first);
}

TEST_CASE("too many ranks on one host are refused on each, with what there can be") {
    RankOptions options;
    options.segment_bytes = 1 << 20;
    try {
        run_ranks(65, [](int, Communicator&, Node&) {}, options);
        FAIL("65 ranks shared memory");
    } catch (const std::runtime_error& error) {
        const std::string text = error.what();
        CHECK_MESSAGE(text.find("up to 64") != std::string::npos, text);
        CHECK_MESSAGE(text.find("65 ranks on one host") != std::string::npos, text);
    }
}
