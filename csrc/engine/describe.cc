// What a communicator says about itself to people: what it runs on and why, and what it would run for a call. For the log
// and `collectives info --plan`; no program reads these texts.
#include <string>

#include "engine/communicator_impl.h"
#include "transport/transports.h"

namespace collectives {
namespace {

/// With the largest unit that divides it: "512 KiB".
std::string size_text(int64_t bytes) {
    if (bytes != 0 && bytes % (1 << 20) == 0)
        return std::to_string(bytes >> 20) + " MiB";
    if (bytes != 0 && bytes % (1 << 10) == 0)
        return std::to_string(bytes >> 10) + " KiB";
    return std::to_string(bytes) + " B";
}

std::string from_text(int64_t bytes, const char* of) {
    return bytes == INT64_MAX ? "never" : "from " + size_text(bytes) + " " + of;
}

std::string stores_text(const PlannerConfig& planner, const std::string& wish, const Tuning& tuning) {
    return std::string(planner.stage_store == kernels::Store::streaming ? "streaming" : "plain") + " stores (" +
           (wish != "auto" ? "set to " + wish
            : tuning.known ? "measured"
                           : "not measured") +
           ")";
}

bool pulls_nothing(const PlannerConfig& planner) {
    return planner.pull_move_from_bytes == INT64_MAX && planner.pull_scatter_from_bytes == INT64_MAX &&
           planner.pull_reduce_from_bytes == INT64_MAX;
}

bool would_pull(const Tuning& tuning) {
    return tuning.pull_move_from != INT64_MAX || tuning.pull_scatter_from != INT64_MAX ||
           tuning.pull_reduce_from != INT64_MAX;
}

/// Where the users' buffers lie: what the notes of the ranks would say.
Shape with_buffers(Shape shape, const PlannerConfig& planner, bool shared) {
    if (!wants_notes(shape, planner))
        return shape;
    shape.mapped_in = shape.mapped_out = shared;
    shape.readable_in = shape.readable_out = shared || pull_unit_bytes(shape) >= shape.pull_from_bytes;
    return shape;
}

} // namespace

std::string CommunicatorImpl::describe_group() const {
    if (config_.world_size == 1)
        return "one rank: there is nothing to move";
    const Transport* transport = find_transport(node_.transport());
    const Tuning tuning = engine_.tuning();
    std::string text = "transport " + std::string(transport->name) + " (" + transport->what + "); staging " +
                       size_text(2 * group_->half_bytes()) + " a rank, " +
                       stores_text(planner_, node_.config().streaming_stores, tuning) + "; ";
    if (config_.pull_from_bytes < 0)
        return text + "no pulling (switched off)";
    for (int q = 0; q < config_.world_size; ++q)
        if (const PeerProcess* peer = group_->member(q).process; peer != nullptr && !LocalNode::can_pull(*peer))
            return text + "no pulling (the system does not let this process read the memory of " + group_->name_of(q) +
                   ")";
    if (pulls_nothing(planner_))
        return text + "no pulling (" +
               (!tuning.known        ? "not measured"
                : would_pull(tuning) ? "the system does not let another rank read its peers' memory"
                                     : "measured: staging is faster") +
               ")";
    return text + "pulling (" + (config_.pull_from_bytes > 0 ? "set" : "measured") +
           "): all_gather, all_to_all and broadcast " + from_text(planner_.pull_move_from_bytes, "a block") +
           ", reduce_scatter " + from_text(planner_.pull_scatter_from_bytes, "a block") + ", all_reduce " +
           from_text(planner_.pull_reduce_from_bytes, "a share");
}

std::string CommunicatorImpl::describe_plan(const Call& call) const {
    std::string text = describe(call, config_.rank) + ", " + std::to_string(config_.world_size) +
                       (config_.world_size == 1 ? " rank:" : " ranks:");
    if (config_.world_size == 1)
        return text + "\n  a copy";
    const Shape shape = shape_of(call, config_.rank, config_.world_size, group_->half_bytes(), planner_);
    const Shape with_private = with_buffers(shape, planner_, false), with_shared = with_buffers(shape, planner_, true);
    const Algorithm* for_private = choose_algorithm(with_private, planner_);
    const Algorithm* for_shared = choose_algorithm(with_shared, planner_);
    for (int i = 0; i < kAlgorithmCount; ++i) {
        const Algorithm& row = *kAlgorithms[i];
        if (row.kind != call.kind)
            continue;
        const bool taken = &row == for_private || &row == for_shared;
        text += std::string("\n  ") + (taken ? "* " : "  ") + row.name + ": " + row.cost;
        if (taken && for_private != for_shared)
            text += &row == for_shared ? " (all buffers in shared memory)" : " (buffers in private memory)";
        else if (!row.applies(with_private) && !row.applies(with_shared))
            text += " (does not apply)";
    }
    return text;
}

} // namespace collectives
