// The stages of all_to_all on two levels, for blocks that all have the same size: within the host, so that each lane holds what
// goes to the ranks that drive it on the other hosts; on each lane one message to every host; and from there into place.
// Blocks for this host go the same way, as the lane's message to itself. See two_level.h.
//
// Who sends what is HostLayout's `sources`: the blocks of which places of a host, for the rank that drives a lane on another,
// travel on that lane. Everything between the levels lies in scratch memory, so that larger blocks stay on one level.
#include <algorithm>

#include "engine/two_level.h"

namespace collectives {
namespace {

/// Of the algorithms of one level.
double fastest_ns(WirePlanner& planner, const Shape& shape) {
    double least = 0;
    for (const WireCandidate& each : planner.candidates(shape))
        if (each.row->applies(shape) && (least == 0 || each.ns < least))
            least = each.ns;
    return least;
}

int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

} // namespace

/// With splits a rank knows its own counts alone, and not those of the others of its host, whose blocks it would carry. Without,
/// what any rank has between the levels must fit.
bool TwoLevel::exchanges(const Call& call) const {
    if (call.in.counts != nullptr || call.out.counts != nullptr)
        return false;
    const int64_t block_bytes = call.in.count * int64_t(size_of(call.dtype));
    return block_bytes <= (kExchangeScratchBytes - 4 * 64) / (2 * layout_.world_size() + 2 * most_carried_);
}

int64_t TwoLevel::most_carried() const {
    int most = 0;
    for (int h = 0; h < layout_.hosts(); ++h)
        for (int p = 0; p < layout_.size(h); ++p) most = std::max(most, layout_.carried(h, p));
    return most;
}

int64_t TwoLevel::most_sources() const {
    int64_t most = 0;
    for (int h = 0; h < layout_.hosts(); ++h)
        for (int g = 0; g < layout_.hosts(); ++g)
            for (int lane = 0; lane < layout_.lanes; ++lane) most = std::max(most, layout_.sources(h, g, lane).count);
    return most;
}

Call TwoLevel::message_of(const Call& call) const {
    Call message = call;
    message.in.count = message.out.count = call.in.count * most_sources_;
    return message;
}

/// The messages of the lanes of the rank that drives the most, the copies of what a rank has between the levels, and two more
/// operations: the one within the host, and the waiting for it.
double TwoLevel::predict_exchange_ns(const Call& call, const PlannerConfig& config, WirePlanner& lanes) const {
    constexpr double kCopies = 6; // to pack, stage, take, sort, pass on or receive, and place
    const LinkCosts& costs = lanes.profile().costs;
    const Shape message = wire_shape_of(message_of(call), 0, layout_.hosts(), config);
    const double bytes = double(call.in.count * int64_t(size_of(call.dtype)) * layout_.world_size());
    return layout_.most_lanes_of_a_rank() * fastest_ns(lanes, message) + kCopies * bytes * costs.copy_byte_ns +
           2 * costs.call_ns;
}

bool TwoLevel::pays(const Call& call, const PlannerConfig& config, WirePlanner& flat, WirePlanner& lanes) const {
    if (call.kind != Collective::all_to_all || config.two_levels)
        return true; // fewer bytes on the links; or forced
    if (message_of(call).in.count * int64_t(size_of(call.dtype)) > kMostMessageBytes)
        return false;
    if (layout_.world_size() > WirePlanner::kMostPredicted)
        return true; // too many to predict, for whom fewer frames matter the most
    const double one = fastest_ns(flat, wire_shape_of(call, 0, layout_.world_size(), config));
    return predict_exchange_ns(call, config, lanes) < one;
}

void TwoLevel::plan_all_to_all() {
    const int64_t size = call_->in.count * element_bytes();
    const int64_t own = whole_lines(layout_.world_size() * size);
    const int64_t carried = whole_lines(layout_.carried(host_, place_) * size);
    uint8_t* packed = take_scratch(2 * own + 2 * carried);
    uint8_t *arrived = packed + own, *messages = arrived + own, *received = messages + carried;
    pack_blocks(packed);
    if (here() > 1) {
        exchange_here(packed, received);
        sort_messages(received, messages);
    } else {
        messages = packed; // all that this host's lanes carry is this rank's, in the order of the messages
    }
    const Range ready{n_stages_ - 1, n_stages_};
    place_blocks(arrived, exchange_on_lanes(messages, arrived, ready));
}

/// The own blocks in the order of the places that carry them, their lanes, and the hosts that they go to.
void TwoLevel::pack_blocks(uint8_t* packed) {
    const int64_t count = call_->in.count;
    Stage& pack = add_copies({});
    for (int lane = 0; lane < layout_.lanes; ++lane) // drivers follow each other
        for (int g = 0; g < layout_.hosts(); ++g) {
            const Share sources = layout_.sources(host_, g, lane);
            if (place_ < sources.begin || place_ >= sources.begin + sources.count)
                continue;
            pack.copy(packed, block(call_->in, layout_.rank_at(g, lane)), count);
            packed += count * element_bytes();
        }
}

/// Blocks that the lanes of place `carrier` have from place `source`, both of this host.
int64_t TwoLevel::blocks_between(int source, int carrier) const {
    int64_t blocks = 0;
    for (int lane = layout_.first_lane(host_, carrier); lane < layout_.first_lane(host_, carrier + 1); ++lane)
        for (int g = 0; g < layout_.hosts(); ++g) {
            const Share sources = layout_.sources(host_, g, lane);
            blocks += source >= sources.begin && source < sources.begin + sources.count;
        }
    return blocks;
}

void TwoLevel::exchange_here(uint8_t* packed, uint8_t* received) {
    const int64_t count = call_->in.count;
    Stage& within = add_call(kWithin, Collective::all_to_all);
    for (int j = 0; j < here(); ++j) {
        within.in_counts.push_back(blocks_between(place_, j) * count);
        within.out_counts.push_back(blocks_between(j, place_) * count);
    }
    within.call.in = Blocks{packed, nullptr, within.in_counts.data(), 0};
    within.call.out = Blocks{received, nullptr, within.out_counts.data(), 0};
}

/// From the order of the places that they came from to that of the messages: by lane, host and place.
void TwoLevel::sort_messages(uint8_t* received, uint8_t* messages) {
    const int64_t count = call_->in.count, size = count * element_bytes();
    Stage& sort = add_copies({});
    std::vector<uint8_t*>& from = cursors_;
    from.clear();
    for (int j = 0; j < here(); ++j) {
        from.push_back(received);
        received += blocks_between(j, place_) * size;
    }
    for (int i = 0; i < own_lanes(); ++i)
        for (int g = 0; g < layout_.hosts(); ++g) {
            const Share sources = layout_.sources(host_, g, lane_of(i));
            for (int64_t j = sources.begin; j < sources.begin + sources.count; ++j) {
                sort.copy(messages, from[size_t(j)], count);
                from[size_t(j)] += size;
                messages += size;
            }
        }
}

TwoLevel::Range TwoLevel::exchange_on_lanes(uint8_t* messages, uint8_t* arrived, Range ready) {
    const int64_t count = call_->in.count;
    const int begin = n_stages_;
    for (int i = 0; i < own_lanes(); ++i) {
        Stage& cross = add_on_lane(i, Collective::all_to_all, ready);
        int64_t goes = 0, comes = 0;
        for (int g = 0; g < layout_.hosts(); ++g) {
            cross.in_counts.push_back(layout_.sources(host_, g, lane_of(i)).count * count);
            cross.out_counts.push_back(layout_.sources(g, host_, lane_of(i)).count * count);
            goes += cross.in_counts.back();
            comes += cross.out_counts.back();
        }
        // Even hosts' messages have one size, which opens it to the algorithms that want that.
        const int64_t* given = layout_.even() ? nullptr : cross.in_counts.data();
        cross.call.in = Blocks{messages, nullptr, given, cross.in_counts[0]};
        cross.call.out =
            Blocks{arrived, nullptr, given != nullptr ? cross.out_counts.data() : nullptr, cross.out_counts[0]};
        messages += goes * element_bytes();
        arrived += comes * element_bytes();
    }
    return {begin, n_stages_};
}

void TwoLevel::place_blocks(uint8_t* arrived, Range crossed) {
    const int64_t count = call_->in.count;
    Stage& place = add_copies(crossed);
    for (int i = 0; i < own_lanes(); ++i)
        for (int g = 0; g < layout_.hosts(); ++g) {
            const Share sources = layout_.sources(g, host_, lane_of(i));
            for (int64_t p = sources.begin; p < sources.begin + sources.count; ++p) {
                place.copy(block(call_->out, layout_.ranks[size_t(g)][size_t(p)]), arrived, count);
                arrived += count * element_bytes();
            }
        }
}

} // namespace collectives
