// LinkProfile: what is known of the links between the ranks of a group: the costs of the model (algorithms/program_cost.h),
// and by how much algorithms were faster or slower than it says. As text it is broadcast, so that all ranks hold the same,
// and kept in the user's cache directory by `collectives tune`. Private to the engine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "algorithms/program_cost.h"
#include "base/status.h"

namespace collectives {

/// Measured over predicted time of one algorithm, at some sizes.
class Correction {
  public:
    void set(int64_t bytes, double factor) { points_[bytes] = factor; }
    /// Between the sizes by the logarithm of the size, beyond them as at the nearest. 1 where nothing is known.
    double at(int64_t bytes) const;
    const std::map<int64_t, double>& points() const { return points_; }

  private:
    std::map<int64_t, double> points_;
};

/// Of one level: the ranks of a group, or the lanes between hosts of a group of two levels.
struct LevelProfile {
    LinkCosts costs;
    std::map<std::string, Correction> corrections; // by algorithm
};

struct LinkProfile {
    std::string origin = "assumed"; // "measured" when the group formed, or "tuned" by `collectives tune`
    LevelProfile flat, lanes;

    std::string text() const;
    /// Errors: invalid_argument, with the line that is not understood.
    static Status parse(const std::string& text, LinkProfile* out);
};

/// Where the profile of ranks that lie so is kept: "<folder>/<host>-<interface>-2x2.links". `folder` empty: nowhere.
std::string profile_path(const std::string& folder, const std::string& host, const std::string& interface,
                         const std::vector<int>& ranks_of_hosts);
/// Empty when there is none.
std::string read_profile(const std::string& path);
Status write_profile(const std::string& path, const std::string& text);

} // namespace collectives
