// Forming a group between hosts. Private to the engine.
#pragma once

#include <memory>
#include <vector>

#include "engine/progress.h"
#include "engine/two_level.h"
#include "engine/wire_group.h"

namespace collectives {

/// One round of the bootstrap: every rank says where it listens. `hellos`: by rank. No connection is made yet.
/// Errors: as the bootstrap's, and invalid_argument (no such interface), unsupported (another host's rank listens on its
/// loopback), mismatch (another number of streams).
Status form_wire_group(LocalNode& node, ProgressEngine& engine, const CommunicatorConfig& config,
                       const std::vector<Hello>& hellos, Bootstrap& bootstrap, int64_t deadline_ns,
                       std::unique_ptr<WireGroup>* out);

/// The two levels of a group: its host's shared memory, over a bootstrap of its own, and its lane. Null, with ok, where
/// no host has several of its ranks. Errors: as Group::create's.
Status form_two_levels(LocalNode& node, const CommunicatorConfig& config, const std::vector<Hello>& hellos,
                       WireGroup& wire, Bootstrap& bootstrap, int64_t deadline_ns, std::unique_ptr<TwoLevel>* out);

/// Whether a rank of the group is on this one's host.
bool same_host(const Hello& a, const Hello& b);

} // namespace collectives
