// What the ranks of a group agree on before its first operation: whether they can pull, and, measured once a process on
// its first group, which way of moving data is the fastest here. All ranks end with the same numbers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/communicator_impl.h"

namespace collectives {
namespace {

constexpr int64_t kSizes[] = {8 << 10, 32 << 10, 128 << 10, 512 << 10, 4 << 20}; // bytes of a block
constexpr int kSizeCount = 5;
constexpr int64_t kMostBytes = 16 << 20; // of a vector that is measured
constexpr int kRepeats = 5;
constexpr int kRepeatsOfLargest = 3;
constexpr double kMustWinBy = 0.95; // pulling has to be this much faster, or staging stays
constexpr Collective kMeasured[] = {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce};

/// The size from which pulling is taken so that the sizes together (as ratios) are the fastest: one disturbed measurement
/// does not decide. INT64_MAX: never.
int64_t best_threshold(const double (*times)[3], int sizes, int staged) {
    double best = INFINITY;
    int64_t threshold = INT64_MAX;
    for (int from = sizes; from >= 0; --from) {
        double cost = 0;
        for (int s = 0; s < sizes; ++s) cost += std::log(s < from ? kMustWinBy * times[s][staged] : times[s][2]);
        if (cost < best) {
            best = cost;
            threshold = from == sizes ? INT64_MAX : kSizes[from];
        }
    }
    return threshold;
}

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
    int64_t words[5] = {tuning.known, tuning.stage_streaming, tuning.pull_move_from, tuning.pull_scatter_from,
                        tuning.pull_reduce_from};
    call.kind = Collective::broadcast;
    call.in = call.out = Blocks{words, nullptr, nullptr, 5};
    COLLECTIVES_RETURN_IF_ERROR(run(call, -1));
    tuning = {words[0] != 0, words[1] != 0, words[2], words[3], words[4]};
    bool inproc = group_->member(config_.rank == 0 ? 1 : 0).process->inproc;
    if (!tuning.known && !inproc)
        COLLECTIVES_RETURN_IF_ERROR(measure(all_can != 0, &tuning));
    if (tuning.known)
        engine_.set_tuning(tuning);
    if (tuning.known && node_.config().streaming_stores == "auto")
        planner_.stage_store = tuning.stage_streaming ? kernels::Store::streaming : kernels::Store::plain;
    planner_.pull_move_from_bytes = tuning.pull_move_from;
    planner_.pull_scatter_from_bytes = tuning.pull_scatter_from;
    planner_.pull_reduce_from_bytes = tuning.pull_reduce_from;
    if (config_.pull_from_bytes > 0)
        planner_.pull_move_from_bytes = planner_.pull_scatter_from_bytes = planner_.pull_reduce_from_bytes =
            config_.pull_from_bytes;
    if (all_can == 0)
        planner_.pull_move_from_bytes = planner_.pull_scatter_from_bytes = planner_.pull_reduce_from_bytes = INT64_MAX;
    issued_.store(0, std::memory_order_relaxed); // the user's first call is number 1
    return {};
}

/// Nanoseconds of one call under `planner`: the fastest of a few on each rank, the slowest rank of those.
Status CommunicatorImpl::time_call(const Call& call, const PlannerConfig& planner, int repeats, double* ns) {
    PlannerConfig saved = planner_;
    planner_ = planner;
    double best = 1e18;
    Status status;
    for (int i = 0; i < repeats + 1 && status.ok(); ++i) {
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
    int sizes = 1;
    while (sizes < kSizeCount && kSizes[sizes] * n <= kMostBytes) ++sizes;
    std::vector<float> in(size_t(kSizes[sizes - 1] * n / 4), 1.0f), out(in.size(), 1.0f);
    PlannerConfig plans[3] = {planner_, planner_, planner_}; // plain staging, streaming staging, pulling
    for (PlannerConfig& plan : plans) {
        plan.forced = nullptr;
        plan.stage_store = kernels::Store::plain;
    }
    plans[1].stage_store = kernels::Store::streaming;
    plans[2].pull_move_from_bytes = plans[2].pull_scatter_from_bytes = plans[2].pull_reduce_from_bytes = 1;
    double times[3][kSizeCount][3] = {}, plain_total = 0, streaming_total = 0;
    for (int kind = 0; kind < 3; ++kind)
        for (int s = 0; s < sizes; ++s) {
            int64_t block = kSizes[s] / 4;
            Call call;
            call.kind = kMeasured[kind];
            call.dtype = DType::f32;
            call.in =
                Blocks{in.data(), nullptr, nullptr, kMeasured[kind] == Collective::all_reduce ? block * n : block};
            call.out = Blocks{out.data(), nullptr, nullptr, call.in.count};
            for (int plan = 0; plan < (can_pull ? 3 : 2); ++plan)
                COLLECTIVES_RETURN_IF_ERROR(time_call(
                    call, plans[plan], kSizes[s] < (1 << 20) ? kRepeats : kRepeatsOfLargest, &times[kind][s][plan]));
            plain_total += times[kind][s][0] / double(kSizes[s]);
            streaming_total += times[kind][s][1] / double(kSizes[s]);
        }
    tuning->known = true;
    tuning->stage_streaming = streaming_total < plain_total;
    int64_t* from[3] = {&tuning->pull_move_from, &tuning->pull_scatter_from, &tuning->pull_reduce_from};
    for (int kind = 0; kind < 3 && can_pull; ++kind)
        *from[kind] = best_threshold(times[kind], sizes, tuning->stage_streaming);
    return {};
}

} // namespace collectives
