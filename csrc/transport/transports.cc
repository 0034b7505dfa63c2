// The rows, and the checks on their names.
#include "transport/transports.h"

#include "transport/faults.h"
#include "transport/local_node.h"

namespace collectives {
namespace {

template <bool sharable> Status create_local(const NodeConfig& config, std::unique_ptr<Node>* out) {
    std::unique_ptr<LocalNode> node;
    COLLECTIVES_RETURN_IF_ERROR(LocalNode::create(config, sharable, &node));
    *out = std::move(node);
    return {};
}

Status unknown(const std::string& name) {
    std::string text = "no transport is named '" + name + "': there are ";
    for (int i = 0; i < kTransportCount; ++i)
        text += std::string(i == 0 ? "" : i + 1 < kTransportCount ? ", " : " and ") + kTransports[i].name;
    return Status(Code::invalid_argument, text);
}

} // namespace

const Transport kTransports[] = {
    // name, between processes, between threads, wraps
    {"shm", true, true, false, "shared memory, memfd segments passed over a socket", create_local<true>},
    {"tcp", true, true, false, "TCP between hosts", create_local<false>},
    {"inproc", false, true, false, "ranks as threads of one process", create_local<false>},
    {"faulty", true, true, true, "another transport with seeded delays, reordering and death", nullptr},
};
const int kTransportCount = int(sizeof kTransports / sizeof kTransports[0]);

const Transport* find_transport(const std::string& name) {
    for (const Transport& row : kTransports)
        if (name == row.name)
            return &row;
    return nullptr;
}

Status create_node(const std::string& transport, const NodeConfig& config, std::unique_ptr<Node>* out) {
    const Transport* row = find_transport(transport);
    if (row == nullptr)
        return unknown(transport);
    if (!row->wraps && config.faults != nullptr)
        return Status(Code::invalid_argument,
                      "transport " + transport + " takes no fault plan: ask for transport faulty over it");
    if (row->wraps && config.faults == nullptr)
        return Status(Code::invalid_argument, "transport " + transport + " needs a fault plan (NodeConfig::faults)");
    if (row->wraps) {
        COLLECTIVES_RETURN_IF_ERROR(check_plan(*config.faults));
        row = find_transport(config.faults->over);
        if (row == nullptr)
            return unknown(config.faults->over);
        if (row->wraps)
            return Status(Code::invalid_argument, "a fault plan cannot be over transport " + config.faults->over +
                                                      ", which wraps another itself");
    }
    return row->create(config, out);
}

Status check_transports(const std::vector<std::string>& allowed, const std::string& used) {
    bool found = allowed.empty();
    std::string names;
    for (const std::string& name : allowed) {
        if (find_transport(name) == nullptr)
            return unknown(name);
        found = found || name == used;
        names += (names.empty() ? "" : ", ") + name;
    }
    if (found)
        return {};
    return Status(Code::invalid_argument, "this process reaches its peers by transport " + used +
                                              ", which is not among those allowed (" + names + ")");
}

} // namespace collectives
