// What programs between hosts will take: those of all ranks are run with a clock in the place of links. A pure function, the
// same on every rank for the same numbers; the planner between hosts (engine/wire_planner.h) compares algorithms by it, so
// that a new row of the table needs no formula of its own.
//
// The model is LogGP's (Alexandrov et al., "LogGP: Incorporating Long Messages into the LogP Model", 1995) with a gap that
// depends on the message's size: a rank works for every frame that it sends or receives, one after the other; a frame
// occupies the way out of its sender and the way into its receiver; and it is under way for a while. docs/adr/0008.
// Included by algorithms and engine.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "algorithms/program.h"

namespace collectives {

/// A network and the processors on it, as numbers. What has not been measured is that of an idle 10 Gbit/s network.
struct LinkCosts {
    static constexpr int kPoints = 6;
    static constexpr std::array<int64_t, kPoints> kPointBytes{64, 4 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20};

    double call_ns = 2e3;    // of an operation that does nothing
    double latency_ns = 2e4; // a frame's way from one port to the other
    double frame_ns = 3e3;   // a rank's work for a frame, at either end
    /// How long a frame of so many bytes occupies a port; between the points and beyond the last, in a straight line.
    std::array<double, kPoints> port_ns{0, 4e3, 3e4, 1.1e5, 4.4e5, 1.8e6};
    double reduce_byte_ns = 0.1; // for each byte of each source
    double copy_byte_ns = 0.1;
    int64_t eager_bytes = 64 << 10; // more than this to a peer waits until that one says that it has begun

    double port_of(int64_t bytes) const;
};

/// Nanoseconds from the call until the last rank has ended, if all call at once. `programs`: of every rank, finished.
double predict_ns(const std::vector<Program>& programs, int64_t element_bytes, const LinkCosts& costs);

/// The programs of all ranks for an even call like `shape`'s, of `shape.count` elements.
std::vector<Program> programs_of_all(const WireAlgorithm& row, const Shape& shape);

} // namespace collectives
