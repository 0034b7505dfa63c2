// Bounds what a request to a c10d store may take. A FileStore waits for its file, others for a key, as long as the store's
// own timeout says, which may be longer than the deadline of the operation that asks. Included by store_bootstrap.cc.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>

namespace collectives {

/// While one lives, the store's timeout ends with the deadline, or a second from now if that is later. Then it is what
/// it was before. Any number at once, also on prefixes of one store; any thread.
class StoreTimeout {
  public:
    StoreTimeout(c10d::Store& store, int64_t deadline_ns);
    ~StoreTimeout();
    StoreTimeout(const StoreTimeout&) = delete;
    StoreTimeout& operator=(const StoreTimeout&) = delete;

  private:
    c10d::Store& store_; // the one behind all prefixes, which keeps the timeout
};

} // namespace collectives
