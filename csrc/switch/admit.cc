// Row 2: who sent it. The key is where a packet came from and the job that it names; the number of the worker in the packet
// is not looked at. Jobs are admitted here as well, and given their part of the pool. Twin of p4/controls/admit.p4 and of
// its control plane.
#include <algorithm>
#include <string>

#include "switch/pipeline.h"

namespace collectives::aggregation {
namespace {

int64_t bytes_of(size_t slots, int most_lanes, bool tagged) {
    return int64_t(slots) * int64_t(sizeof(Slot) + sizeof(Counts) + 2 * sizeof(int32_t) * size_t(most_lanes)) +
           (tagged ? int64_t(sizeof(wire::Tagger)) : 0);
}

int64_t bytes_of(const Job& job) { return bytes_of(job.slots.size(), job.most_lanes, job.tagger != nullptr); }

} // namespace

size_t SwitchPipeline::Hash::operator()(const Sender& sender) const {
    uint64_t high, low;
    std::memcpy(&high, sender.source.address.data(), 8);
    std::memcpy(&low, sender.source.address.data() + 8, 8);
    uint64_t mixed = (high ^ low * 0x9E3779B97F4A7C15ull) + (uint64_t(sender.source.port) << 32 | sender.job);
    mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9ull;
    return size_t(mixed ^ mixed >> 32);
}

void SwitchPipeline::admit(Visit& visit, const Source& from) {
    const auto found = workers_.find({from, visit.header.job});
    if (found == workers_.end()) {
        visit.verdict = Verdict::stranger;
        return;
    }
    visit.job = found->second.job;
    visit.worker = found->second.worker;
}

Status SwitchPipeline::check(const Admission& admission) const {
    const std::string job = "job " + std::to_string(admission.job) + ": ";
    const size_t n = admission.workers.size();
    if (n < 1 || n > size_t(wire::kMostWorkers))
        return Status(Code::invalid_argument,
                      job + std::to_string(n) + " workers; a job has 1 to " + std::to_string(wire::kMostWorkers));
    for (size_t i = 0; i < n; ++i)
        if (std::count(admission.workers.begin(), admission.workers.end(), admission.workers[i]) != 1)
            return Status(Code::invalid_argument,
                          job + "worker " + std::to_string(i) + " has the address and port of another one");
    if (admission.slots < 1 || admission.most_lanes < 1 || admission.most_lanes > wire::kMostLanes)
        return Status(Code::invalid_argument,
                      job + std::to_string(admission.slots) + " slots of " + std::to_string(admission.most_lanes) +
                          " lanes; there must be a slot, and 1 to " + std::to_string(wire::kMostLanes) + " lanes");
    int64_t left = pool_bytes_ - used_bytes_;
    if (auto known = jobs_.find(admission.job); known != jobs_.end()) {
        if (known->second->incarnation == admission.incarnation)
            return Status(Code::invalid_argument,
                          job + "incarnation " + std::to_string(admission.incarnation) + " is in use");
        left += bytes_of(*known->second);
    }
    if (const int64_t asked = bytes_of(admission.slots, admission.most_lanes, admission.key.has_value()); asked > left)
        return Status(Code::unsupported, job + std::to_string(admission.slots) + " slots of " +
                                             std::to_string(admission.most_lanes) + " lanes take " +
                                             std::to_string(asked) + " bytes, and " + std::to_string(left) + " of " +
                                             std::to_string(pool_bytes_) + " are left: ask for fewer slots");
    return {};
}

Status SwitchPipeline::admit(const Admission& admission) {
    COLLECTIVES_RETURN_IF_ERROR(check(admission));
    release(admission.job);
    auto job = std::make_unique<Job>();
    job->number = admission.job;
    job->incarnation = admission.incarnation;
    job->most_lanes = admission.most_lanes;
    if (admission.key)
        job->tagger = std::make_shared<const wire::Tagger>(*admission.key);
    for (const Source& worker : admission.workers) job->workers.push_back({.at = worker});
    job->slots.resize(admission.slots);
    job->slot_counts.resize(admission.slots);
    job->sums.resize(2 * size_t(admission.slots) * size_t(admission.most_lanes));
    for (size_t i = 0; i < job->workers.size(); ++i) workers_[{job->workers[i].at, job->number}] = {job.get(), int(i)};
    used_bytes_ += bytes_of(admission.slots, admission.most_lanes, admission.key.has_value());
    jobs_[admission.job] = std::move(job);
    return {};
}

bool SwitchPipeline::release(uint32_t number) {
    const auto found = jobs_.find(number);
    if (found == jobs_.end())
        return false;
    const Job& job = *found->second;
    for (const Member& worker : job.workers) workers_.erase({worker.at, number});
    used_bytes_ -= bytes_of(job);
    jobs_.erase(found);
    return true;
}

} // namespace collectives::aggregation
