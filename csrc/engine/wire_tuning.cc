// What the ranks of a group between hosts agree on before its first operation: what they know of the links. Rank 0 says it:
// what `collectives tune` kept for ranks that lie so, else what the first group of its process measured; and if there is
// neither, all measure now, some tens of milliseconds. What everybody then holds is the text that rank 0 sent. And tune.
#include <algorithm>

#include "algorithms/program_probe.h"
#include "base/clock.h"
#include "engine/communicator_impl.h"

namespace collectives {
namespace {

constexpr int kWarmUps = 2, kFewRepeats = 5, kManyRepeats = 15;
constexpr double kLongestProbeNs = 2e7;
constexpr int64_t kGridStep = 4; // sizes that are tuned: 8 B, 32 B, 128 B, ...
constexpr double kTuneNs = 1e8;  // on one algorithm at one size,
constexpr int kMostRepeats = 100;

int64_t median(std::vector<int64_t> values) {
    std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
    return values[values.size() / 2];
}

Call bytes_call(Collective kind, void* data, int64_t bytes) {
    Call call;
    call.kind = kind;
    call.dtype = DType::u8;
    call.in = call.out = Blocks{data, nullptr, nullptr, bytes};
    return call;
}

/// Nanoseconds that this processor needs for a byte of each source of a sum, and of a copy.
void measure_kernels(double* reduce_byte_ns, double* copy_byte_ns) {
    constexpr int64_t kBytes = 256 << 10;
    std::vector<float> a(kBytes / 4, 1.0f), b(a.size(), 2.0f);
    kernels::ReduceFn reduce = kernels::reduce_fn(ReduceOp::sum, DType::f32, kernels::Store::plain);
    kernels::ReduceArgs args;
    void* dst = a.data();
    const void* srcs[2] = {a.data(), b.data()};
    *reduce_byte_ns = *copy_byte_ns = 1e9;
    for (int i = 0; i < kFewRepeats; ++i) {
        int64_t start = monotonic_ns();
        reduce(&dst, 1, srcs, 2, int64_t(a.size()), args);
        int64_t middle = monotonic_ns();
        kernels::copy_fn(kernels::Store::plain)(b.data(), a.data(), kBytes);
        *reduce_byte_ns = std::min(*reduce_byte_ns, double(middle - start) / (2 * kBytes));
        *copy_byte_ns = std::min(*copy_byte_ns, double(monotonic_ns() - middle) / kBytes);
    }
}

} // namespace

Status CommunicatorImpl::agree_on_links() {
    std::string text;
    if (config_.rank == 0 && node_.config().link_profiles == "assume") {
        text = LinkProfile{}.text();
    } else if (config_.rank == 0) {
        text = read_profile(own_profile_path());
        LinkProfile kept;
        if (!text.empty() && !LinkProfile::parse(text, &kept).ok()) {
            std::fprintf(stderr, "collectives: %s is not understood, and not used: run `collectives tune` again\n",
                         own_profile_path().c_str());
            text.clear();
        }
        if (text.empty())
            text = engine_.links();
    }
    COLLECTIVES_RETURN_IF_ERROR(share(&text));
    if (text.empty()) {
        LinkProfile measured;
        measured.origin = "measured";
        COLLECTIVES_RETURN_IF_ERROR(measure_levels(&measured));
        text = measured.text();
        COLLECTIVES_RETURN_IF_ERROR(share(&text));
    }
    COLLECTIVES_RETURN_IF_ERROR(use_profile(text));
    issued_.store(0, std::memory_order_relaxed); // the user's first call is number 1
    return {};
}

/// From now on, here and in later groups of this process that have no profile of their own.
Status CommunicatorImpl::use_profile(const std::string& text) {
    COLLECTIVES_RETURN_IF_ERROR(LinkProfile::parse(text, &profile_));
    fabric_.set_profile(profile_);
    engine_.set_links(text);
    return {};
}

/// Rank 0's text to all.
Status CommunicatorImpl::share(std::string* text) {
    int64_t length = int64_t(text->size());
    COLLECTIVES_RETURN_IF_ERROR(run(bytes_call(Collective::broadcast, &length, sizeof length), -1));
    text->resize(size_t(length));
    return length == 0 ? Status{} : run(bytes_call(Collective::broadcast, text->data(), length), -1);
}

/// Runs each call so often, in turn, from a common start to the end of the slowest rank, and notes the median. The same on
/// all ranks.
Status CommunicatorImpl::time_calls(std::vector<TimedCall>* calls) {
    const PlannerConfig saved = planner_;
    std::vector<std::vector<int64_t>> took(calls->size());
    Status status;
    bool more = true;
    for (int i = 0; more && status.ok(); ++i) {
        more = false;
        for (size_t c = 0; c < calls->size() && status.ok(); ++c) {
            const TimedCall& each = (*calls)[c];
            if (i >= each.repeats + kWarmUps)
                continue;
            more = true;
            planner_.lanes_only = false;
            planner_.wire_forced = nullptr;
            status = run(Call{}, -1); // a barrier
            planner_.lanes_only = saved.lanes_only;
            planner_.wire_forced = each.row;
            int64_t start = monotonic_ns();
            if (status.ok())
                status = run(each.call, -1);
            if (i >= kWarmUps)
                took[c].push_back(monotonic_ns() - start);
        }
    }
    planner_.lanes_only = false;
    planner_.wire_forced = nullptr;
    for (size_t c = 0; c < calls->size() && status.ok(); ++c) {
        Call slowest;
        slowest.kind = Collective::all_reduce;
        slowest.op = ReduceOp::max;
        slowest.dtype = DType::i64;
        slowest.in = slowest.out = Blocks{took[c].data(), nullptr, nullptr, int64_t(took[c].size())};
        status = run(slowest, -1);
        if (status.ok())
            (*calls)[c].median_ns = double(median(took[c]));
    }
    planner_ = saved;
    return status;
}

/// `lanes`: those between hosts, all at once, as a collective of two levels uses them.
Status CommunicatorImpl::measure_links(bool lanes, LinkCosts* costs) {
    const int ranks = lanes ? fabric_.two_level()->layout().hosts() : config_.world_size;
    std::vector<uint8_t> data(size_t(LinkCosts::kPointBytes.back()));
    ProbeTimes times;
    const PlannerConfig saved = planner_;
    planner_.lanes_only = lanes;
    auto time = [&](const WireAlgorithm& probe, int64_t bytes, int repeats, double* ns) {
        std::vector<TimedCall> one{{bytes_call(Collective::broadcast, data.data(), bytes), &probe, repeats}};
        Status status = time_calls(&one);
        *ns = one[0].median_ns;
        return status;
    };
    auto all = [&]() -> Status {
        const int64_t small = ProbeTimes::kSmallBytes;
        COLLECTIVES_RETURN_IF_ERROR(time(LinkProbe::few_rounds, small, kManyRepeats, &times.few_rounds));
        COLLECTIVES_RETURN_IF_ERROR(time(LinkProbe::many_rounds, small, kManyRepeats, &times.many_rounds));
        COLLECTIVES_RETURN_IF_ERROR(time(LinkProbe::fan, small, kManyRepeats, &times.fan));
        double last = 0;
        for (int i = 1; i < LinkCosts::kPoints; ++i) {
            const int64_t bytes = LinkCosts::kPointBytes[size_t(i)];
            times.by_size[size_t(i)] = -1; // too long
            if (last * double(bytes) / double(LinkCosts::kPointBytes[size_t(i - 1)]) > kLongestProbeNs)
                continue;
            COLLECTIVES_RETURN_IF_ERROR(time(ProbeTimes::probe_of(i), bytes, kFewRepeats, &times.by_size[size_t(i)]));
            last = times.by_size[size_t(i)];
        }
        return {};
    };
    Status status = all();
    planner_ = saved;
    measure_kernels(&times.reduce_byte_ns, &times.copy_byte_ns);
    *costs = fit_costs(times, ranks); // rank 0's is the one that counts
    return status;
}

Status CommunicatorImpl::measure_levels(LinkProfile* profile) {
    COLLECTIVES_RETURN_IF_ERROR(measure_links(false, &profile->flat.costs));
    return fabric_.two_level() == nullptr ? Status{} : measure_links(true, &profile->lanes.costs);
}

Status CommunicatorImpl::tune(int64_t most_bytes, std::string* path) {
    path->clear();
    if (fabric_.wire() == nullptr)
        return Status(Code::unsupported, "tune is for groups between hosts; all ranks of group '" + config_.name +
                                             "' are on one host, where large calls measure as they go");
    if (most_bytes < 8)
        return Status(Code::invalid_argument, "tune: sizes of up to " + std::to_string(most_bytes) +
                                                  " bytes leave nothing to measure; take 8 or more");
    COLLECTIVES_RETURN_IF_ERROR(check_usable());
    const uint64_t issued = issued_.load();
    LinkProfile tuned;
    tuned.origin = "tuned";
    COLLECTIVES_RETURN_IF_ERROR(measure_levels(&tuned));
    std::string text = tuned.text();
    COLLECTIVES_RETURN_IF_ERROR(share(&text));
    COLLECTIVES_RETURN_IF_ERROR(LinkProfile::parse(text, &tuned));
    COLLECTIVES_RETURN_IF_ERROR(tune_level(false, most_bytes, &tuned.flat));
    if (fabric_.two_level() != nullptr)
        COLLECTIVES_RETURN_IF_ERROR(tune_level(true, most_bytes, &tuned.lanes));
    text = tuned.text();
    COLLECTIVES_RETURN_IF_ERROR(share(&text));
    COLLECTIVES_RETURN_IF_ERROR(use_profile(text));
    issued_.store(issued);
    if (config_.rank != 0 || own_profile_path().empty())
        return {};
    *path = own_profile_path();
    return write_profile(*path, text);
}

/// Every algorithm of the level, at sizes of a grid: by how much the model is wrong.
Status CommunicatorImpl::tune_level(bool lanes, int64_t most_bytes, LevelProfile* level) {
    const int ranks = lanes ? fabric_.two_level()->layout().hosts() : config_.world_size;
    WirePlanner planner;
    planner.set_profile(*level);
    std::vector<float> in, out;
    const PlannerConfig saved = planner_;
    Status status;
    for (int64_t bytes = 8; bytes <= most_bytes && status.ok(); bytes *= kGridStep) {
        in.resize(size_t(bytes) / 4 * size_t(config_.world_size)); // validated as of the whole group
        out.resize(in.size());
        std::vector<TimedCall> calls;
        for (int i = 0; i < kWireAlgorithmCount; ++i) {
            const WireAlgorithm& row = *kWireAlgorithms[i];
            const bool blocks = row.kind == Collective::reduce_scatter || row.kind == Collective::all_gather ||
                                row.kind == Collective::all_to_all || row.kind == Collective::gather ||
                                row.kind == Collective::scatter;
            Call call;
            call.kind = row.kind;
            call.dtype = DType::f32;
            const int64_t count = row.kind == Collective::barrier ? 0 : bytes / 4 / (blocks ? ranks : 1);
            call.in = Blocks{in.data(), nullptr, nullptr, count};
            call.out = Blocks{out.data(), nullptr, nullptr, count};
            const Shape shape = wire_shape_of(call, 0, ranks, planner_);
            if (!row.applies(shape) || (count == 0 && (row.kind != Collective::barrier || bytes > 8)))
                continue;
            const double predicted = planner.predict(row, shape).ns;
            calls.push_back({call, &row, std::clamp(int(kTuneNs / predicted), 3, kMostRepeats), predicted,
                             std::max<int64_t>(1, shape.bytes())});
        }
        planner_.lanes_only = lanes;
        status = time_calls(&calls);
        planner_ = saved;
        for (const TimedCall& each : calls)
            if (status.ok() && each.median_ns > 0)
                level->corrections[each.row->name].set(each.bytes, each.median_ns / each.predicted_ns);
    }
    return status;
}

/// Of ranks that lie as this group's.
std::string CommunicatorImpl::own_profile_path() const {
    std::vector<std::string> hosts;
    std::vector<int> ranks;
    for (int q = 0; q < config_.world_size; ++q) {
        const std::string& host = fabric_.wire()->member(q).host;
        size_t h = size_t(std::find(hosts.begin(), hosts.end(), host) - hosts.begin());
        if (h == hosts.size()) {
            hosts.push_back(host);
            ranks.push_back(0);
        }
        ++ranks[h];
    }
    std::string interface = node_.mesh()->why();
    return profile_path(node_.config().profile_folder, hosts[0], interface.substr(0, interface.find_first_of(" ,")),
                        ranks);
}

} // namespace collectives
