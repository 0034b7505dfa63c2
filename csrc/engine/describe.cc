// What a communicator says about itself to people: what it runs on and why, and what it would run for a call. For the log
// and `collectives info --plan`; no program reads these texts.
#include <algorithm>
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

std::string time_text(double ns) {
    char text[32];
    std::snprintf(text, sizeof text, ns < 1e6 ? "%.3g us" : "%.3g ms", ns < 1e6 ? ns / 1e3 : ns / 1e6);
    return text;
}

std::string stores_text(const PlannerConfig& planner, const std::string& wish, const Tuning& tuning) {
    return std::string(planner.stage_store == kernels::Store::streaming ? "streaming" : "plain") + " stores (" +
           (wish != "auto" ? "set to " + wish
            : tuning.known ? "measured"
                           : "not measured") +
           ")";
}

bool may_pull(const PlannerConfig& planner) {
    return planner.pull_from_bytes != INT64_MAX || (planner.ways & way_bit(Way::pulled)) != 0;
}

/// Where the users' buffers lie, and whether private ones are pulled.
enum class Buffers { staged, pulled, shared };

/// The shape with what the notes of the ranks would say.
Shape with_buffers(Shape shape, const PlannerConfig& planner, Buffers buffers) {
    const bool large = pull_unit_bytes(shape) >= std::min(kWaysFromBytes, planner.pull_from_bytes);
    const bool shared = buffers == Buffers::shared && wants_notes(shape, planner);
    const bool pulled = buffers == Buffers::pulled && large && may_pull(planner) && can_take_notes(shape, planner);
    shape.mapped_in = shape.mapped_out = shared;
    shape.readable_in = shape.readable_out = shared || pulled;
    return shape;
}

const char* condition(bool staged, bool pulled, bool shared) {
    if (staged && pulled && shared)
        return "";
    if (pulled && shared)
        return " (buffers in shared memory, or where pulling measures faster)";
    if (shared)
        return staged ? " (unless pulled)" : " (all buffers in shared memory)";
    return staged ? " (buffers in private memory)" : " (buffers in private memory, where pulling measures faster)";
}

} // namespace

std::string CommunicatorImpl::describe_group() const {
    if (config_.world_size == 1)
        return "one rank: there is nothing to move";
    if (fabric_.wire() != nullptr)
        return describe_links();
    const Transport* transport = find_transport(node_.transport());
    const Tuning tuning = engine_.tuning();
    std::string text = "transport " + std::string(transport->name) + " (" + transport->what + "); staging " +
                       size_text(fabric_.local().staging_bytes()) + " a rank, " +
                       stores_text(planner_, node_.config().streaming_stores, tuning) + "; ";
    if (config_.pull_from_bytes < 0)
        return text + "no pulling (switched off)";
    for (int q = 0; q < config_.world_size; ++q)
        if (const PeerProcess* peer = fabric_.local().member(q).process; peer != nullptr && !LocalNode::can_pull(*peer))
            return text + "no pulling (the system does not let this process read the memory of " + fabric_.name_of(q) +
                   ")";
    if (config_.deterministic)
        return text + "no pulling (deterministic: nothing is measured)";
    if (!may_pull(planner_))
        return text + "no pulling (the system does not let another rank read its peers' memory)";
    if (config_.pull_from_bytes > 0)
        return text + "pulling from " + size_text(config_.pull_from_bytes) + " (set)";
    return text + "blocks from " + size_text(kWaysFromBytes) +
           " are staged or pulled, as the first calls of each size measure";
}

/// "transport tcp: listens on eth0 (10.0.0.1), by the route to 10.0.0.1; 2 streams a peer"
std::string CommunicatorImpl::describe_links() const {
    const TcpMesh& mesh = *node_.mesh();
    return "transport tcp: listens on " + mesh.why() + ", at " + mesh.address() + "; " +
           std::to_string(mesh.streams()) + (mesh.streams() == 1 ? " stream" : " streams") + " a peer; links " +
           profile_.origin + ": " + time_text(profile_.flat.costs.latency_ns + 2 * profile_.flat.costs.frame_ns) +
           " a message, " + time_text(profile_.flat.costs.port_of(1 << 20)) + " a MiB; " +
           std::to_string(mesh.strangers()) + " strangers refused";
}

std::string CommunicatorImpl::describe_plan(const Call& call) const {
    std::string text = describe(call, config_.rank) + ", " + std::to_string(config_.world_size) +
                       (config_.world_size == 1 ? " rank:" : " ranks:");
    if (config_.world_size == 1)
        return text + "\n  a copy";
    if (fabric_.wire() != nullptr)
        return text + describe_wire_plan(call);
    const Shape shape = shape_of(call, config_.rank, config_.world_size, fabric_.local().half_bytes(), planner_);
    const Shape staged = with_buffers(shape, planner_, Buffers::staged),
                pulled = with_buffers(shape, planner_, Buffers::pulled),
                shared = with_buffers(shape, planner_, Buffers::shared);
    const Algorithm *for_staged = choose_algorithm(staged, planner_), *for_pulled = choose_algorithm(pulled, planner_),
                    *for_shared = choose_algorithm(shared, planner_);
    for (int i = 0; i < kAlgorithmCount; ++i) {
        const Algorithm& row = *kAlgorithms[i];
        if (row.kind != call.kind)
            continue;
        const bool taken = &row == for_staged || &row == for_pulled || &row == for_shared;
        text += std::string("\n  ") + (taken ? "* " : "  ") + row.name + ": " + row.cost;
        if (taken)
            text += condition(&row == for_staged, &row == for_pulled, &row == for_shared);
        else if (!row.applies(staged) && !row.applies(pulled) && !row.applies(shared))
            text += " (does not apply)";
    }
    return text;
}

/// The rows of one level, with what they are predicted to take.
std::string CommunicatorImpl::describe_level(const Call& call, int world_size, const LevelProfile& profile) const {
    const Shape shape = wire_shape_of(call, 0, world_size, planner_);
    WirePlanner planner; // of its own: this one may be asked while operations run
    planner.set_profile(profile);
    const WireAlgorithm* taken =
        planner.choose(shape, planner_.deterministic, find_wire_algorithm(config_.algorithm.c_str()));
    std::string text;
    for (int i = 0; i < kWireAlgorithmCount; ++i) {
        const WireAlgorithm& row = *kWireAlgorithms[i];
        if (row.kind != call.kind)
            continue;
        text += std::string("\n  ") + (&row == taken ? "* " : "  ") + row.name + ": " + row.cost;
        if (!row.applies(shape))
            text += " (does not apply)";
        else if (planner_.deterministic && !row.rank_order)
            text += " (another order of summation)";
        else if (world_size <= WirePlanner::kMostPredicted)
            text += "; " + time_text(planner.predict(row, shape).ns) + " predicted";
    }
    return text;
}

std::string CommunicatorImpl::describe_wire_plan(const Call& call) const {
    const TwoLevel* two = fabric_.two_level();
    const WireAlgorithm* forced = find_wire_algorithm(config_.algorithm.c_str());
    if (two == nullptr || (forced != nullptr && forced->kind == call.kind) ||
        !two->applies(call, config_.deterministic))
        return describe_level(call, config_.world_size, profile_.flat);
    WirePlanner flat, lanes;
    flat.set_profile(profile_.flat);
    lanes.set_profile(profile_.lanes);
    const bool exchange = call.kind == Collective::all_to_all;
    const std::string predicted =
        exchange ? ": " + time_text(two->predict_exchange_ns(call, planner_, lanes)) + " predicted" : "";
    if (!two->pays(call, planner_, flat, lanes))
        return "\n    two levels" + predicted + "; one level is faster, as" +
               describe_level(call, config_.world_size, profile_.flat);
    Call between = exchange ? two->message_of(call) : call; // what a rank of each host does with those of the others
    if (call.kind == Collective::all_reduce)
        between.in.count = between.out.count = largest_share(call.in.count, two->layout().lanes, 64);
    return "\n  * two levels" + predicted + ": in shared memory on each of " + std::to_string(two->layout().hosts()) +
           " hosts, and between them, " + std::to_string(two->layout().lanes) + " at a time, as" +
           describe_level(between, two->layout().hosts(), profile_.lanes);
}

} // namespace collectives
