// Bootstrap over a c10d::Store (TCPStore, FileStore, HashStore, or one written in Python), and what else the torch
// backend asks of a store: an agreement on who came to a monitored barrier.
// Included by the other bindings only. Everything here may be called with or without the GIL, and releases it in waits.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transport/bootstrap.h"

namespace collectives {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// Rounds of all_gather through keys "collectives/<generation>/<round>/<rank>".
///
/// The generation counts how often this rank made a bootstrap with the same store and prefix, so that a group that is
/// destroyed and made again under the same name (torchrun keeps its store) never reads the keys of the first one. A
/// first round costs four requests to the store (count, write, wait, read), a later one three, whatever the number of
/// ranks. Nothing is deleted: a slow rank may still have to read.
class StoreBootstrap final : public Bootstrap {
  public:
    /// `name` is the group's in errors. `global_ranks` names the ranks in errors; empty: 0..world_size-1.
    StoreBootstrap(StorePtr store, int rank, int world_size, std::string name, std::vector<int> global_ranks = {});

    /// Errors: timeout (names the ranks that did not come), interrupted (Ctrl-C), peer_failed (the store is gone).
    Status all_gather(std::string_view mine, std::vector<std::string>* all, int64_t deadline_ns) override;
    std::unique_ptr<Bootstrap> sub(const std::string& name, const std::vector<int>& ranks) override;

    /// How often this rank made a bootstrap in this place; 0 before the first round.
    int64_t generation() const { return generation_; }

  private:
    Status begin(int64_t deadline_ns);
    std::string key(int rank) const;
    std::string name_of(int rank) const;

    StorePtr store_;
    const int rank_;
    const int world_size_;
    const std::string name_;
    const std::vector<int> global_ranks_;
    int64_t generation_ = 0; // 0: not asked for yet
    int64_t round_ = 0;
};

/// Waits until all keys are there: looks again and again, every millisecond at first. Errors: timeout (fills
/// `missing` with the positions of the keys that are not there), interrupted, peer_failed (the store is gone), or what
/// `watch` says (see Bootstrap).
Status wait_for_keys(c10d::Store& store, const std::vector<std::string>& keys, int64_t deadline_ns,
                     std::vector<int>* missing, const std::function<Status()>& watch = {});

/// Says that this rank came to the meeting at `place` in the store, and waits for the others. Every rank that takes
/// part, early or late, gets the same `missing` (empty: all came): whoever gives up first writes the list that counts for
/// all. A place serves one meeting.
Status meet(c10d::Store& store, const std::string& place, int rank, int world_size, int64_t deadline_ns,
            std::vector<int>* missing);

/// Runs Python's signal handlers if this is the main thread; true when one raised (Ctrl-C). Its error stays set in this
/// thread, for throw_c10d of an interrupted status.
bool signal_raised();

/// Releases the GIL for a scope if this thread holds it.
class ReleaseGil {
  public:
    ReleaseGil();
    ~ReleaseGil();
    ReleaseGil(const ReleaseGil&) = delete;
    ReleaseGil& operator=(const ReleaseGil&) = delete;

  private:
    void* state_; // PyThreadState*, null when the GIL was not held
};

} // namespace collectives
