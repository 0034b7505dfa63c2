// The table of transports: what each can do, as data, and how a node of it is made. Adding one is a file and a row.
// May be included by transport, engine and bindings.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/node.h"

namespace collectives {

struct Transport {
    const char* name;
    bool between_processes; // of one host
    bool between_threads;   // nodes of one process
    bool wraps;             // adds to another row; reaches what that one reaches
    const char* what;       // one line, for people
    /// Makes a node (of tcp: one that tests reach over links alone); null for rows that wrap, whose node is made by the row that FaultPlan::over names.
    Status (*create)(const NodeConfig& config, std::unique_ptr<Node>* out);
};

extern const Transport kTransports[];
extern const int kTransportCount;

/// The row with this name, or null.
const Transport* find_transport(const std::string& name);

/// Makes a node of a row. Errors: invalid_argument (no such row, a fault plan where none belongs or none where one does,
/// or one that is wrong), internal (the system refuses memory or sockets).
Status create_node(const std::string& transport, const NodeConfig& config, std::unique_ptr<Node>* out);

/// Whether a group may be made over `used`. `allowed`: names of rows; empty: all. Errors: invalid_argument.
Status check_transports(const std::vector<std::string>& allowed, const std::string& used);

} // namespace collectives
