// What the rows of the registry share: their declarations, the sizes that separate them, the arithmetic of pieces.
// Included by the files of csrc/algorithms only.
#pragma once

#include "algorithms/algorithm.h"

namespace collectives {

constexpr int64_t kOneShotBytes = 64 << 10; // one-shot up to this over the world size: later two shots move less

inline Ref peer_input(int rank, int64_t offset_bytes) {
    return {Region::peer_input, false, int16_t(rank), offset_bytes};
}
inline Ref peer_output(int rank, int64_t offset_bytes) {
    return {Region::peer_output, false, int16_t(rank), offset_bytes};
}

/// Elements of one piece when `available_bytes` hold `slots` of them: whole cache lines, at least one line.
inline int64_t piece_elements(const Shape& s, int64_t available_bytes, int slots) {
    int64_t bytes = std::min(available_bytes / slots, std::max<int64_t>(64, s.piece_bytes / std::max(1, slots)));
    return std::max<int64_t>(64, bytes / 64 * 64) / s.element_bytes;
}
inline int64_t pieces(int64_t count, int64_t piece) { return (count + piece - 1) / piece; }

extern const Algorithm kAllReduceInline, kAllReduceOneShot, kAllReduceTwoShot, kAllReduceMapped, kAllReducePulled;
extern const Algorithm kReduceInline, kReduceOneShot, kReduceTwoShot;
extern const Algorithm kReduceScatterInline, kReduceScatterStaged, kReduceScatterMapped;
extern const Algorithm kAllGatherInline, kAllGatherStaged, kAllGatherMapped;
extern const Algorithm kAllToAllStaged;
extern const Algorithm kBroadcastInline, kBroadcastMapped, kBroadcastStaged;
extern const Algorithm kGatherStaged, kScatterStaged, kBarrier;

} // namespace collectives
