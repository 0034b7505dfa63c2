// Where every rank listens, and the group's number. See wire_join.h.
#include "engine/wire_join.h"

#include <cstring>

#include "transport/tcp_socket.h"

namespace collectives {
namespace {

struct Listening {
    uint64_t id; // of the group, if this is rank 0
    int64_t streams;
};

uint64_t new_id(const Hello& own) {
    static std::atomic<uint64_t> counter{0};
    uint64_t id;
    std::memcpy(&id, own.uuid.data() + 8, sizeof id);
    return id + 0x9e3779b97f4a7c15ull * ++counter;
}

} // namespace

bool same_host(const Hello& a, const Hello& b) { return why_not_local(a, b).empty(); }

Status form_wire_group(LocalNode& node, ProgressEngine& engine, const CommunicatorConfig& config,
                       const std::vector<Hello>& hellos, Bootstrap& bootstrap, int64_t deadline_ns,
                       std::unique_ptr<WireGroup>* out) {
    WireHub* hub = nullptr;
    COLLECTIVES_RETURN_IF_ERROR(engine.open_hub(config.interface, &hub));
    TcpMesh& mesh = hub->mesh();
    Listening own{new_id(node.hello()), mesh.streams()};
    std::vector<std::string> all;
    COLLECTIVES_RETURN_IF_ERROR(bootstrap.all_gather(
        std::string(reinterpret_cast<const char*>(&own), sizeof own) + mesh.address(), &all, deadline_ns));
    uint64_t id = 0;
    std::vector<WireMember> members(hellos.size());
    for (size_t q = 0; q < hellos.size(); ++q) {
        const Hello& hello = hellos[q];
        Listening theirs;
        const std::string who =
            "rank " + std::to_string(q) + " (process " + std::to_string(hello.pid) + " on host " + hello.host + ")";
        if (all.size() != hellos.size() || all[q].size() <= sizeof theirs)
            return Status(Code::internal, who + " did not say where it listens");
        std::memcpy(&theirs, all[q].data(), sizeof theirs);
        std::string address = all[q].substr(sizeof theirs);
        if (q == 0)
            id = theirs.id;
        members[q].host = hello.host;
        members[q].pid = hello.pid;
        if (int(q) == config.rank)
            continue;
        Address parsed;
        COLLECTIVES_RETURN_IF_ERROR(parse_address(address, &parsed));
        bool one_network = hello.boot_id == node.hello().boot_id && hello.net_namespace == node.hello().net_namespace;
        if (parsed.loopback() && !one_network)
            return Status(Code::unsupported, who + " listens on its loopback (" + address +
                                                 "), which other hosts cannot reach: name its "
                                                 "interface with COLLECTIVES_INTERFACE there");
        if (theirs.streams != own.streams)
            return Status(Code::mismatch, who + " uses " + std::to_string(theirs.streams) +
                                              " streams a peer, this rank " + std::to_string(own.streams) +
                                              ": set COLLECTIVES_STREAMS alike on all ranks");
        std::lock_guard<std::mutex> lock(mesh.mutex());
        members[q].link = mesh.link_to({hello.uuid, hello.share, hello.host, hello.pid, address});
    }
    *out = std::make_unique<WireGroup>(*hub, config, id, std::move(members));
    return {};
}

Status form_two_levels(LocalNode& node, const CommunicatorConfig& config, const std::vector<Hello>& hellos,
                       WireGroup& wire, Bootstrap& bootstrap, int64_t deadline_ns, std::unique_ptr<TwoLevel>* out) {
    HostLayout layout = HostLayout::of(hellos);
    if (!layout.layered())
        return {};
    for (const std::vector<int>& ranks : layout.ranks) // of any host: all ranks come to the same conclusion
        COLLECTIVES_RETURN_IF_ERROR(Group::check_size(int(ranks.size())));
    const int host = layout.host_of[size_t(config.rank)], place = layout.place_of[size_t(config.rank)];
    auto part = [&](const std::vector<int>& ranks, int index) {
        CommunicatorConfig inner = config;
        inner.rank = index;
        inner.world_size = int(ranks.size());
        inner.shown_ranks = ranks;
        inner.global_ranks.clear();
        for (int q : ranks)
            inner.global_ranks.push_back(config.global_ranks.empty() ? q : config.global_ranks[size_t(q)]);
        return inner;
    };
    const std::vector<int>& here = layout.ranks[size_t(host)];
    std::unique_ptr<Group> local;
    std::unique_ptr<Bootstrap> meeting;
    if (here.size() > 1) {
        meeting = bootstrap.sub("host" + std::to_string(host), here);
        meeting->watch = bootstrap.watch;
    }
    std::vector<Hello> elsewhere;
    COLLECTIVES_RETURN_IF_ERROR(
        Group::create(node, part(here, place), meeting ? *meeting : bootstrap, deadline_ns, false, &local, &elsewhere));
    if (local == nullptr)
        return Status(Code::internal, "processes of host " + hellos[size_t(config.rank)].host + " do not share memory");
    std::vector<std::unique_ptr<WireGroup>> lanes;
    for (int l = layout.first_lane(host, place); l < layout.first_lane(host, place + 1); ++l) {
        std::vector<int> ranks;
        std::vector<WireMember> members;
        for (int h = 0; h < layout.hosts(); ++h) {
            ranks.push_back(layout.rank_at(h, l));
            members.push_back(wire.member(ranks.back()));
        }
        uint64_t id = (wire.id() ^ (0x632be59bd9b4e019ull * uint64_t(l + 1))) * 0x9e3779b97f4a7c15ull;
        lanes.push_back(std::make_unique<WireGroup>(wire.hub(), part(ranks, host), id, std::move(members)));
    }
    *out = std::make_unique<TwoLevel>(std::move(layout), config.rank, std::move(local), std::move(lanes));
    return {};
}

} // namespace collectives
