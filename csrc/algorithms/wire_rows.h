// What the algorithms between hosts share: their declarations, pieces of shares, and places in blocks.
// Included by the files of csrc/algorithms only.
#pragma once

#include "algorithms/program.h"

namespace collectives {

constexpr int kWindow = 4;                    // pieces of one peer that may be in scratch at a time
constexpr int64_t kExchangeBytes = 1 << 20;   // its scratch is everybody's vector
constexpr int64_t kDoublingBytes = 256 << 10; // its scratch is the vector once a round

/// Elements of one piece: what is received, reduced and sent on while the next one arrives.
inline int64_t segment_elements(const Shape& s) { return std::max<int64_t>(1, s.piece_bytes / s.element_bytes); }
inline int64_t segments(int64_t count, int64_t segment) { return (count + segment - 1) / segment; }

/// Piece i of rank `part`'s share of the vector, in elements from the vector's beginning.
inline Share share_segment(const Shape& s, int part, int64_t i, int64_t segment) {
    Share share = share_of(s.count, part, s.world_size, s.element_bytes);
    Share p = piece_of(share.count, i, segment);
    return {share.begin + p.begin, p.count};
}

/// The d-th rank behind this one: everybody starts with another.
inline int behind(const Shape& s, int d) { return (s.rank + d) % s.world_size; }

/// A copy within this rank, in pieces: what arrives, or may leave, goes first.
inline void copy_in_pieces(const Shape& s, Program& out, Place to, Place from, int64_t count) {
    const int64_t segment = segment_elements(s);
    for (int64_t i = 0; i < segments(count, segment); ++i) {
        out.copy(to, from, piece_of(count, i, segment).count);
        to.offset_bytes += segment * s.element_bytes;
        from.offset_bytes += segment * s.element_bytes;
    }
}

inline bool in_place(const Call& call) {
    const void* in = call.in.ptrs != nullptr ? call.in.ptrs[0] : call.in.base;
    const void* out = call.out.ptrs != nullptr ? call.out.ptrs[0] : call.out.base;
    return in == out;
}

extern const WireAlgorithm kAllReduceExchange, kAllReduceDirect, kReduceExchange, kReduceDirect;
extern const WireAlgorithm kAllReduceDoubling, kAllReduceHalving, kAllReduceRing;
extern const WireAlgorithm kBroadcastTree, kReduceTree;
extern const WireAlgorithm kReduceScatterDirect, kAllGatherDirect, kAllGatherRing, kAllToAllPairwise, kAllToAllBruck;
extern const WireAlgorithm kBroadcastDirect, kBroadcastScatterGather;
extern const WireAlgorithm kGatherDirect, kScatterDirect, kBarrierDirect;

} // namespace collectives
