// What the ranks of a group agree on before its first operation: whether they can pull, and, measured once a process on
// its first group, which way of moving data is the fastest here. All ranks end with the same numbers.
#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/communicator_impl.h"

namespace collectives {
namespace {

constexpr int64_t kSizes[] = {32 << 10, 128 << 10, 512 << 10}; // bytes of a block
constexpr int kRepeats = 5;
constexpr double kMustWinBy = 0.95; // pulling has to be this much faster, or staging stays

} // namespace

Status CommunicatorImpl::agree() {
    if (config_.world_size == 1)
        return {};
    bool can_pull = config_.pull_from_bytes >= 0;
    for (int q = 0; q < config_.world_size && can_pull; ++q)
        if (const PeerProcess* peer = group_->member(q).process)
            can_pull = LocalNode::can_pull(*peer);
    int64_t all_can = can_pull;
    Call call;
    call.kind = Collective::all_reduce;
    call.op = ReduceOp::min;
    call.dtype = DType::i64;
    call.in = call.out = Blocks{&all_can, nullptr, nullptr, 1};
    COLLECTIVES_RETURN_IF_ERROR(run(call, -1));

    Tuning tuning = engine_.tuning();
    int64_t words[4] = {tuning.known, tuning.stage_streaming, tuning.pull_move_from, tuning.pull_reduce_from};
    call.kind = Collective::broadcast;
    call.in = call.out = Blocks{words, nullptr, nullptr, 4};
    COLLECTIVES_RETURN_IF_ERROR(run(call, -1));
    tuning = {words[0] != 0, words[1] != 0, words[2], words[3]};
    bool inproc = group_->member(config_.rank == 0 ? 1 : 0).process->inproc;
    if (!tuning.known && !inproc)
        COLLECTIVES_RETURN_IF_ERROR(measure(all_can != 0, &tuning));
    if (tuning.known)
        engine_.set_tuning(tuning);
    if (tuning.known && node_.config().streaming_stores == "auto")
        planner_.stage_store = tuning.stage_streaming ? kernels::Store::streaming : kernels::Store::plain;
    planner_.pull_move_from_bytes = tuning.pull_move_from;
    planner_.pull_reduce_from_bytes = tuning.pull_reduce_from;
    if (config_.pull_from_bytes > 0)
        planner_.pull_move_from_bytes = planner_.pull_reduce_from_bytes = config_.pull_from_bytes;
    if (all_can == 0)
        planner_.pull_move_from_bytes = planner_.pull_reduce_from_bytes = INT64_MAX;
    issued_.store(0, std::memory_order_relaxed); // the user's first call is number 1
    return {};
}

/// Nanoseconds of one call under `planner`: the fastest of a few on each rank, the slowest rank of those.
Status CommunicatorImpl::time_call(const Call& call, const PlannerConfig& planner, double* ns) {
    PlannerConfig saved = planner_;
    planner_ = planner;
    double best = 1e18;
    Status status;
    for (int i = 0; i < kRepeats + 1 && status.ok(); ++i) {
        Call barrier;
        status = run(barrier, -1);
        int64_t start = monotonic_ns();
        if (status.ok())
            status = run(call, -1);
        if (i > 0)
            best = std::min(best, double(monotonic_ns() - start));
    }
    planner_ = saved;
    COLLECTIVES_RETURN_IF_ERROR(status);
    Call slowest;
    slowest.kind = Collective::all_reduce;
    slowest.op = ReduceOp::max;
    slowest.dtype = DType::f64;
    slowest.in = slowest.out = Blocks{&best, nullptr, nullptr, 1};
    *ns = best;
    COLLECTIVES_RETURN_IF_ERROR(run(slowest, -1));
    *ns = best;
    return {};
}

Status CommunicatorImpl::measure(bool can_pull, Tuning* tuning) {
    int64_t n = config_.world_size;
    std::vector<float> in(size_t(kSizes[2] * n / 4), 1.0f), out(in.size(), 1.0f);
    PlannerConfig staged = planner_, streaming = planner_, pulled = planner_;
    staged.forced = streaming.forced = pulled.forced = nullptr;
    staged.stage_store = kernels::Store::plain;
    streaming.stage_store = kernels::Store::streaming;
    pulled.pull_move_from_bytes = pulled.pull_reduce_from_bytes = 1;
    double plain_total = 0, streaming_total = 0, times[2][3][3] = {};
    for (int kind = 0; kind < 2; ++kind)
        for (int s = 0; s < 3; ++s) {
            Call call;
            call.kind = kind == 0 ? Collective::all_gather : Collective::all_reduce;
            call.dtype = DType::f32;
            int64_t block = kSizes[s] / 4;
            call.in = Blocks{in.data(), nullptr, nullptr, kind == 0 ? block : block * n};
            call.out = Blocks{out.data(), nullptr, nullptr, kind == 0 ? block : block * n};
            COLLECTIVES_RETURN_IF_ERROR(time_call(call, staged, &times[kind][s][0]));
            COLLECTIVES_RETURN_IF_ERROR(time_call(call, streaming, &times[kind][s][1]));
            if (can_pull)
                COLLECTIVES_RETURN_IF_ERROR(time_call(call, pulled, &times[kind][s][2]));
            plain_total += times[kind][s][0] / double(kSizes[s]);
            streaming_total += times[kind][s][1] / double(kSizes[s]);
        }
    tuning->known = true;
    tuning->stage_streaming = streaming_total < plain_total;
    for (int kind = 0; kind < 2; ++kind) {
        int64_t from = INT64_MAX;
        for (int s = 2; s >= 0 && can_pull; --s) {
            if (times[kind][s][2] >= kMustWinBy * times[kind][s][tuning->stage_streaming])
                break;
            from = kSizes[s];
        }
        (kind == 0 ? tuning->pull_move_from : tuning->pull_reduce_from) = from;
    }
    return {};
}

} // namespace collectives
