// What the ranks of a group agree on before its first operation: whether they can pull, and which store instruction suits
// this machine's caches for small messages, measured once a process on its first group. Large messages measure as they go
// (ways.h). All ranks end with the same numbers.
#include <algorithm>

#include <unistd.h>

#include "engine/communicator_impl.h"

namespace collectives {
namespace {

constexpr int64_t kBlockBytes = 16 << 10; // measured: the largest that does not choose its way call by call
constexpr int kRepeats = 8;
constexpr int64_t kCrowdedPieceBytes = 128 << 10;
constexpr double kMustWinBy = 0.9;

} // namespace

Status CommunicatorImpl::agree() {
    if (config_.world_size == 1)
        return {};
    if (fabric_.wire() != nullptr)
        return agree_on_links();
    bool can_pull = config_.pull_from_bytes >= 0;
    for (int q = 0; q < config_.world_size && can_pull; ++q)
        if (const PeerProcess* peer = fabric_.local().member(q).process)
            can_pull = LocalNode::can_pull(*peer);
    int64_t all_can = can_pull;
    Call call;
    call.kind = Collective::all_reduce;
    call.op = ReduceOp::min;
    call.dtype = DType::i64;
    call.in = call.out = Blocks{&all_can, nullptr, nullptr, 1};
    COLLECTIVES_RETURN_IF_ERROR(run(call, -1));

    Tuning tuning = engine_.tuning();
    int64_t words[3] = {tuning.known, tuning.stage_streaming, piece_bytes()};
    call.kind = Collective::broadcast;
    call.in = call.out = Blocks{words, nullptr, nullptr, 3};
    COLLECTIVES_RETURN_IF_ERROR(run(call, -1));
    planner_.piece_bytes = words[2];
    tuning = {words[0] != 0, words[1] != 0};
    bool inproc = fabric_.local().member(config_.rank == 0 ? 1 : 0).process->inproc;
    if (!tuning.known && !inproc)
        COLLECTIVES_RETURN_IF_ERROR(measure_stores(&tuning));
    if (tuning.known)
        engine_.set_tuning(tuning);
    if (tuning.known && node_.config().streaming_stores == "auto")
        planner_.stage_store = tuning.stage_streaming ? kernels::Store::streaming : kernels::Store::plain;
    if (all_can != 0 && config_.pull_from_bytes > 0)
        planner_.pull_from_bytes = config_.pull_from_bytes;
    if (!inproc)
        allow_ways(all_can != 0);
    issued_.store(0, std::memory_order_relaxed); // the user's first call is number 1
    return {};
}

/// What a rank stages at a time. Where ranks share cores, their staging shares the cores' second-level caches.
int64_t CommunicatorImpl::piece_bytes() const {
    if (config_.piece_bytes > 0)
        return config_.piece_bytes;
    bool crowded = config_.world_size > sysconf(_SC_NPROCESSORS_ONLN);
    return crowded ? std::min(kCrowdedPieceBytes, planner_.piece_bytes) : planner_.piece_bytes;
}

/// Among which ways large calls choose. A deterministic group measures nothing, though every way gives the same bits.
void CommunicatorImpl::allow_ways(bool can_pull) {
    if (config_.deterministic || config_.pull_from_bytes > 0)
        return;
    const std::string& streaming = node_.config().streaming_stores;
    planner_.ways = way_bit(streaming == "on" ? Way::streamed : Way::staged);
    if (streaming == "auto")
        planner_.ways |= way_bit(Way::streamed);
    if (can_pull)
        planner_.ways |= way_bit(Way::pulled);
}

/// Times an all_gather of middle size with both store instructions, in turn; the slowest rank of each one's fastest.
Status CommunicatorImpl::measure_stores(Tuning* tuning) {
    const PlannerConfig saved = planner_;
    planner_.forced = nullptr;
    std::vector<float> in(kBlockBytes / 4, 1.0f), out(in.size() * size_t(config_.world_size));
    Call call;
    call.kind = Collective::all_gather;
    call.dtype = DType::f32;
    call.in = Blocks{in.data(), nullptr, nullptr, int64_t(in.size())};
    call.out = Blocks{out.data(), nullptr, nullptr, int64_t(in.size())};
    double best[2] = {1e18, 1e18};
    Status status;
    for (int i = 0; i < 2 * (kRepeats + 1) && status.ok(); ++i) {
        planner_.stage_store = i % 2 == 0 ? kernels::Store::plain : kernels::Store::streaming;
        Call barrier;
        status = run(barrier, -1);
        int64_t start = monotonic_ns();
        if (status.ok())
            status = run(call, -1);
        if (i >= 2)
            best[i % 2] = std::min(best[i % 2], double(monotonic_ns() - start));
    }
    planner_ = saved;
    COLLECTIVES_RETURN_IF_ERROR(status);
    Call slowest;
    slowest.kind = Collective::all_reduce;
    slowest.op = ReduceOp::max;
    slowest.dtype = DType::f64;
    slowest.in = slowest.out = Blocks{best, nullptr, nullptr, 2};
    COLLECTIVES_RETURN_IF_ERROR(run(slowest, -1));
    *tuning = {true, best[1] < kMustWinBy * best[0]};
    return {};
}

} // namespace collectives
