// How errors name a rank of a group. Private to the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace collectives {

/// "rank 2 (process 71 on host a)", with the rank's number in the job where that differs. `shown`: of a part of a group,
/// its ranks in the whole, empty where it is no part; `global`: its ranks in the job, or empty.
inline std::string rank_name(int q, const std::vector<int>& shown, const std::vector<int>& global, int64_t pid,
                             const std::string& host) {
    const int number = shown.empty() ? q : shown[size_t(q)];
    std::string text = "rank " + std::to_string(number) + " (";
    if (size_t(q) < global.size() && global[size_t(q)] != number)
        text += "rank " + std::to_string(global[size_t(q)]) + " of the job, ";
    return text + "process " + std::to_string(pid) + " on host " + host + ")";
}

/// What a rank tells its peers of its failure: they know whose word it is, and of what group.
inline std::string told_to_peers(std::string text, const std::string& group, const std::string& name) {
    const std::string known = " of group '" + group + "'", here = known + " on " + name;
    if (const size_t at = text.find(known); at != std::string::npos)
        text.erase(at, text.compare(at, here.size(), here) == 0 ? here.size() : known.size());
    return text;
}

} // namespace collectives
