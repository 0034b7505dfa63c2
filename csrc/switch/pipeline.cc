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
    tag(visit);
    if (visit.goes_on())
        fence(visit);
    if (visit.goes_on())
        probe(visit);
    if (visit.goes_on())
        epoch(visit);
    if (visit.goes_on() && !visit.begins)
        seen(visit);
    if (visit.goes_on()) {
        count(visit);
        aggregate(visit);
    }
}

namespace {

bool is_answered(Verdict verdict) {
    return verdict == Verdict::mismatch || verdict == Verdict::replayed || verdict == Verdict::completed ||
           verdict == Verdict::probed;
}

/// Of the worker and its slot. A packet that is not proven to be the worker's does not move its door.
void note(const Visit& visit, int door) {
    Member& worker = visit.job->workers[size_t(visit.worker)];
    ++worker.counts[size_t(visit.verdict)];
    if (visit.verdict == Verdict::bad_tag)
        return;
    worker.door = door;
    worker.last_ns = visit.now_ns;
    if (visit.slot != nullptr)
        ++visit.job->slot_counts[size_t(visit.slot - visit.job->slots.data())][size_t(visit.verdict)];
}

} // namespace

Reply SwitchPipeline::process(const Source& from, const uint8_t* datagram, size_t bytes, int64_t now_ns, uint8_t* out,
                              int door) {
    Visit visit;
    visit.now_ns = now_ns;
    parse(visit, served_, datagram, bytes);
    if (visit.goes_on())
        admit(visit, from);
    if (visit.goes_on())
        serve(visit);
    ++counters_[size_t(visit.verdict)];
    if (visit.job != nullptr)
        note(visit, door);
    Reply result;
    result.verdict = visit.verdict;
    if (!is_answered(visit.verdict))
        return result;
    result.job = visit.job;
    const bool alone = visit.verdict == Verdict::replayed || visit.verdict == Verdict::probed;
    result.worker = alone ? visit.worker : -1;
    result.bytes = reply(visit, out);
    if (visit.job->tagger != nullptr)
        visit.job->tagger->sign(out, result.bytes);
    return result;
}

std::vector<const Job*> SwitchPipeline::jobs() const {
    std::vector<const Job*> found;
    for (const auto& [number, job] : jobs_) found.push_back(job.get());
    std::sort(found.begin(), found.end(), [](const Job* a, const Job* b) { return a->number < b->number; });
    return found;
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
