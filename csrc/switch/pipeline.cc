// The way of a packet through the controls. See pipeline.h.
#include "switch/pipeline.h"

#include <algorithm>

namespace collectives::aggregation {

const char* name_of(Verdict verdict) {
    switch (verdict) {
#define VERDICT(name)                                                                                                  \
    case Verdict::name: return #name;
        COLLECTIVES_VERDICTS(VERDICT)
#undef VERDICT
    default: return "none";
    }
}

void serve(Visit& visit) {
    fence(visit);
    if (visit.goes_on())
        epoch(visit);
    if (visit.goes_on() && !visit.begins)
        seen(visit);
    if (visit.goes_on()) {
        count(visit);
        aggregate(visit);
    }
}

Reply SwitchPipeline::process(const Source& from, const uint8_t* datagram, size_t bytes, int64_t now_ns, uint8_t* out) {
    Visit visit;
    visit.now_ns = now_ns;
    parse(visit, served_, datagram, bytes);
    if (visit.goes_on())
        admit(visit, from);
    if (visit.goes_on())
        serve(visit);
    ++counters_[size_t(visit.verdict)];
    Reply result;
    result.verdict = visit.verdict;
    if (visit.verdict != Verdict::mismatch && visit.verdict != Verdict::replayed && visit.verdict != Verdict::completed)
        return result;
    result.job = visit.job;
    result.worker = visit.verdict == Verdict::replayed ? visit.worker : -1;
    result.bytes = reply(visit, out);
    return result;
}

std::vector<Waiting> SwitchPipeline::waiting() const {
    std::vector<Waiting> found;
    for (const auto& [number, job] : jobs_) {
        const uint64_t everyone = ~uint64_t(0) >> (64 - job->workers.size());
        Waiting oldest;
        for (size_t s = 0; s < job->slots.size(); ++s)
            for (const Cell& cell : job->slots[s].cells)
                if (cell.count != 0 && cell.mask != everyone &&
                    (oldest.missing == 0 || cell.begun_ns < oldest.begun_ns))
                    oldest = {number, uint32_t(s), cell.epoch, cell.begun_ns, everyone & ~cell.mask};
        if (oldest.missing != 0)
            found.push_back(oldest);
    }
    std::sort(found.begin(), found.end(), [](const Waiting& a, const Waiting& b) { return a.begun_ns < b.begun_ns; });
    return found;
}

} // namespace collectives::aggregation
