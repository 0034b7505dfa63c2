// Bootstrap: how the ranks of a new group find each other, before any transport exists. Implemented over a c10d store
// (bindings), over threads (tests) and over an existing communicator (split).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace collectives {

class Bootstrap {
  public:
    virtual ~Bootstrap() = default;

    /// Gives every rank's `mine` to every rank, in rank order. Each call is one round: all ranks make the same calls in
    /// the same order. Errors: timeout (names the ranks that did not come), peer_failed.
    virtual Status all_gather(std::string_view mine, std::vector<std::string>* all, int64_t deadline_ns) = 0;

    /// A bootstrap among `ranks` of this one (their indices here, in the new order; this rank is one of them), whose
    /// rounds do not mix with this one's. `name` tells apart several of them. Needs no help of ranks that are left out.
    virtual std::unique_ptr<Bootstrap> sub(const std::string& name, const std::vector<int>& ranks) = 0;

    /// Asked now and then while a round waits; an error ends the wait with it. A group that is made from another watches
    /// that one, so that a rank which dies on the way there is noticed before the deadline.
    std::function<Status()> watch;
};

} // namespace collectives
