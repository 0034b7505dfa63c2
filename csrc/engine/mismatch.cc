// Who called what: the text of the error when the fingerprints of two ranks differ. Each rank keeps a record of its last
// calls in its control block, its uneven counts with it; whoever sees a disagreement compares the records of both.
// Part of CommunicatorImpl (engine/communicator_impl.h).
#include <algorithm>
#include <string>

#include "engine/communicator_impl.h"

namespace collectives {
namespace {

/// The counts that all ranks must give alike, where they are uneven; null: there are none.
const int64_t* uneven_counts(const Call& call, int world_size) {
    const int64_t* counts = call.kind == Collective::reduce_scatter ? call.in.counts
                            : call.kind == Collective::all_gather   ? call.out.counts
                                                                    : nullptr;
    if (counts == nullptr || std::count(counts, counts + world_size, counts[0]) == world_size)
        return nullptr; // equal counts are the same call as none
    return counts;
}

/// "all_gather of float64, counts 1, 2, 3"
std::string text_of(const CallRecord& record, uint64_t sequence, int world_size) {
    const uint64_t what = record.what.load(std::memory_order_relaxed);
    Call call;
    call.kind = Collective(what & 0xff);
    call.dtype = DType(what >> 8 & 0xff);
    call.op = ReduceOp(what >> 16 & 0xff);
    call.root = int(what >> 24 & 0xffff);
    call.in.count = call.out.count = record.count.load(std::memory_order_relaxed);
    if (record.counts_of.load(std::memory_order_relaxed) != sequence)
        return describe(call, call.root);
    call.in.counts = call.out.counts = &call.in.count; // uneven: no one count to be shown
    std::string text = describe(call, call.root) + ", counts ";
    for (int q = 0; q < std::min(world_size, kCountsRecorded); ++q)
        text += (q > 0 ? ", " : "") + std::to_string(record.counts[q].load(std::memory_order_relaxed));
    return text + (world_size > kCountsRecorded ? ", ..." : "");
}

} // namespace

void CommunicatorImpl::record_counts(const Call& call, uint64_t sequence) {
    const int64_t* counts = uneven_counts(call, config_.world_size);
    Group* group = fabric_.wire() == nullptr        ? &fabric_.local()
                   : fabric_.two_level() != nullptr ? &fabric_.two_level()->local()
                                                    : nullptr;
    if (counts == nullptr || group == nullptr || group->size() == 1)
        return;
    CallRecord& record = group->self().control->records[sequence % kCallRecords];
    for (int q = 0; q < std::min(config_.world_size, kCountsRecorded); ++q)
        record.counts[q].store(counts[q], std::memory_order_relaxed);
    record.counts_of.store(sequence, std::memory_order_relaxed);
}

/// `place`: in the group, of the rank that differs.
Status CommunicatorImpl::mismatch_error(Group& group, int place) {
    const int q = fabric_.rank_of(group, place);
    const ControlBlock *own = group.self().control, *other = group.member(place).control;
    const uint64_t last = fabric_.sequence(), first = last >= kCallRecords ? last - kCallRecords + 1 : 1;
    const std::string me = fabric_.name_of(config_.rank), peer = fabric_.name_of(q);
    std::string detail =
        "an earlier call than the last " + std::to_string(kCallRecords) + " was another on " + me + " than on " + peer;
    for (uint64_t s = first; s <= last; ++s) {
        const CallRecord &a = own->records[s % kCallRecords], &b = other->records[s % kCallRecords];
        if (a.sequence.load(std::memory_order_relaxed) != s || b.sequence.load(std::memory_order_relaxed) != s)
            continue;
        const std::string mine = text_of(a, s, config_.world_size), theirs = text_of(b, s, config_.world_size);
        const std::string call = "call #" + std::to_string(s) + " is " + mine;
        if (mine != theirs) {
            detail = call + " on " + me + " but " + theirs + " on " + peer;
            break;
        }
        if (a.counts_of.load(std::memory_order_relaxed) == s && config_.world_size > kCountsRecorded)
            detail = call + " on " + me + " and on " + peer + ", with other counts for later ranks";
    }
    return Status(Code::mismatch, "ranks of group '" + config_.name + "' called different operations: " + detail +
                                      "; every rank must make the same calls in the same order");
}

/// The operation in progress failed by itself. What the fingerprints showed is told out of the records; a disagreement
/// about splits has told itself.
Status CommunicatorImpl::operation_failed() {
    const int q = fabric_.culprit();
    Status status = fabric_.failure();
    int place = -1;
    if (Group* group = status.code() == Code::mismatch ? fabric_.mismatch(&place) : nullptr; group != nullptr)
        status = mismatch_error(*group, place);
    int culprit = -1;
    // A peer whose memory is gone may have given up because of a third rank, and freed it: that rank is the news.
    if (Status cause = fabric_.known_failure(&culprit); status.code() == Code::peer_failed && !cause.ok())
        return fail(cause, culprit, &fabric_.call());
    return fail(status, q, nullptr);
}

} // namespace collectives
