// Steps: what an algorithm asks the engine to do in one phase. Symbolic (who, region, offset), so that the same steps can
// be run on shared memory, on a faulty transport, or counted and timed by a simulator. No I/O, no pointers to data.
//
// A phase is: write steps; publish the phase; wait for peers to publish theirs; read steps. The engine keeps two halves
// ("parities") of everything a rank publishes, phase n using half n % 2, and starts the writes of phase n only when every
// peer has published phase n-1, that is, has finished reading phase n-2. docs/ARCHITECTURE.md has the argument.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "kernels/kernels.h"

namespace collectives {

enum class Region : uint8_t {
    input,       // my own input, block `who`
    output,      // my own output, block `who`
    staging,     // the staging half of rank `who` for this phase's parity
    line,        // the payload of rank `who`'s phase line
    peer_input,  // rank `who`'s input, which all ranks have mapped
    peer_output, // rank `who`'s output, likewise
};

struct Ref {
    Region region;
    bool previous = false; // staging: the half of the phase before
    int16_t who = 0;
    int64_t offset_bytes = 0;
};

enum class StepKind : uint8_t { copy, reduce };

struct Step {
    StepKind kind;
    kernels::Store store; // how the destination is written
    int16_t n_dsts;
    int16_t n_srcs;
    int32_t first_ref; // dsts, then srcs, in PhaseSteps::refs
    int64_t count;     // elements
};

enum class WaitFor : uint8_t { nobody, root, all };

/// The steps of one phase. Made once with room for the largest phase; filling it allocates nothing.
class PhaseSteps {
  public:
    explicit PhaseSteps(int world_size = 1) {
        steps_.resize(size_t(3 * world_size + 4));
        refs_.resize(size_t(8 * world_size + 16));
    }

    void clear() {
        n_steps_ = n_refs_ = n_writes_ = 0;
        wait = WaitFor::all;
    }
    void copy(Ref dst, Ref src, int64_t count, kernels::Store store = kernels::Store::plain) {
        if (count <= 0)
            return;
        add(StepKind::copy, 1, 1, count, store);
        ref(dst);
        ref(src);
    }
    /// Opens a reduction; follow with exactly n_dsts + n_srcs calls of ref(), destinations first.
    void reduce(int n_dsts, int n_srcs, int64_t count, kernels::Store store = kernels::Store::plain) {
        add(StepKind::reduce, n_dsts, n_srcs, count, store);
    }
    void ref(Ref r) {
        COLLECTIVES_CHECK(size_t(n_refs_) < refs_.size());
        refs_[size_t(n_refs_++)] = r;
    }
    /// Everything added so far is to be done before the phase is published; what follows, after the wait.
    void end_of_writes() { n_writes_ = n_steps_; }

    int n_steps() const { return n_steps_; }
    int n_writes() const { return n_writes_; }
    const Step& step(int i) const { return steps_[size_t(i)]; }
    const Ref* refs(const Step& step) const { return &refs_[size_t(step.first_ref)]; }

    WaitFor wait = WaitFor::all;

  private:
    void add(StepKind kind, int n_dsts, int n_srcs, int64_t count, kernels::Store store) {
        COLLECTIVES_CHECK(size_t(n_steps_) < steps_.size());
        steps_[size_t(n_steps_++)] = {kind, store, int16_t(n_dsts), int16_t(n_srcs), n_refs_, count};
    }

    std::vector<Step> steps_;
    std::vector<Ref> refs_;
    int n_steps_ = 0, n_refs_ = 0, n_writes_ = 0;
};

} // namespace collectives
