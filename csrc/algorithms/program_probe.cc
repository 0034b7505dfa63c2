// The programs whose times tell the costs of links, and the costs found from the times. See program_probe.h.
#include "algorithms/program_probe.h"

#include "algorithms/wire_rows.h"

namespace collectives {
namespace {

int next(const Shape& s) { return (s.rank + 1) % s.world_size; }
int previous(const Shape& s) { return (s.rank + s.world_size - 1) % s.world_size; }

void rounds(const Shape& s, Program& out, int n) {
    int64_t slot = (s.bytes() + 63) / 64 * 64, scratch = out.take_scratch(2 * slot);
    int got = -1;
    for (int i = 0; i < n; ++i) {
        out.send(next(s), in_at(), s.count, {got});
        got = out.receive(previous(s), scratch_at(scratch + i % 2 * slot), s.count, {got});
    }
}

/// `frames` to each of the next `peers` ranks.
void shower(const Shape& s, Program& out, int peers, int frames) {
    for (int i = 0; i < frames; ++i)
        for (int d = 1; d <= peers; ++d) out.send((s.rank + d) % s.world_size, in_at(), s.count);
    for (int i = 0; i < frames; ++i)
        for (int d = 1; d <= peers; ++d)
            out.receive((s.rank + s.world_size - d) % s.world_size, scratch_at(out.take_scratch(s.bytes())), s.count);
}

int fan_peers(int world_size) { return std::min(world_size - 1, LinkProbe::kMostPeers); }
int fan_each(int world_size) { return world_size == 2 ? LinkProbe::kBurst : 1; }

void few(const Shape& s, Program& out) { rounds(s, out, LinkProbe::kFewRounds); }
void many(const Shape& s, Program& out) { rounds(s, out, LinkProbe::kManyRounds); }
void fan_out(const Shape& s, Program& out) { shower(s, out, fan_peers(s.world_size), fan_each(s.world_size)); }
void burst_out(const Shape& s, Program& out) { shower(s, out, 1, LinkProbe::kBurst); }
bool always(const Shape&) { return true; }

} // namespace

int LinkProbe::fan_frames(int world_size) { return fan_peers(world_size) * fan_each(world_size); }

const WireAlgorithm LinkProbe::few_rounds{"probe_few_rounds", Collective::broadcast, true, "", always, few};
const WireAlgorithm LinkProbe::many_rounds{"probe_many_rounds", Collective::broadcast, true, "", always, many};
const WireAlgorithm LinkProbe::fan{"probe_fan", Collective::broadcast, true, "", always, fan_out};
const WireAlgorithm LinkProbe::burst{"probe_burst", Collective::broadcast, true, "", always, burst_out};

const WireAlgorithm& ProbeTimes::probe_of(int point) {
    const int64_t bytes = LinkCosts::kPointBytes[size_t(point)], eager = LinkCosts{}.eager_bytes;
    return bytes * LinkProbe::kManyRounds <= eager  ? LinkProbe::many_rounds
           : bytes * LinkProbe::kFewRounds <= eager ? LinkProbe::few_rounds
                                                    : LinkProbe::burst;
}

LinkCosts fit_costs(const ProbeTimes& t, int world_size) {
    LinkCosts c;
    c.reduce_byte_ns = t.reduce_byte_ns;
    c.copy_byte_ns = t.copy_byte_ns;
    const double rounds = LinkProbe::kManyRounds - LinkProbe::kFewRounds;
    const double round = std::max(300.0, (t.many_rounds - t.few_rounds) / rounds);
    c.call_ns = std::max(0.0, t.few_rounds - LinkProbe::kFewRounds * round);
    // Of n frames, the last one leaves after the work for the others; or, where the way is short, a rank works all the time.
    const double n = LinkProbe::fan_frames(world_size), fan = t.fan - c.call_ns;
    const double waits = (fan - round) / (n - 1), works = fan / (2 * n);
    c.frame_ns = std::clamp(std::min(waits, works), 100.0, 0.45 * round);
    c.latency_ns = round - 2 * c.frame_ns;
    c.port_ns[0] = 0;
    for (size_t i = 1; i < LinkCosts::kPoints; ++i) {
        const double took = t.by_size[i] - c.call_ns;
        const WireAlgorithm& probe = ProbeTimes::probe_of(int(i));
        double port = &probe == &LinkProbe::many_rounds ? took / LinkProbe::kManyRounds - round
                      : &probe == &LinkProbe::few_rounds
                          ? took / LinkProbe::kFewRounds - round
                          : (took - 2 * c.latency_ns - 4 * c.frame_ns) / LinkProbe::kBurst;
        if (t.by_size[i] < 0) // a frame that long takes its bytes' share more than the one before
            port = c.port_ns[i - 1] * double(LinkCosts::kPointBytes[i]) / double(LinkCosts::kPointBytes[i - 1]);
        c.port_ns[i] = std::max(port, c.port_ns[i - 1]);
    }
    return c;
}

} // namespace collectives
