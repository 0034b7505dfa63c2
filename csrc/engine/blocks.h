// Where the blocks of a call begin. Private to the engine.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/call.h"

namespace collectives {

/// Byte offsets of blocks that follow each other; nothing to do when they are even or have pointers.
inline void offsets_of(const Blocks& blocks, int64_t element_bytes, std::vector<int64_t>* out) {
    if (blocks.counts == nullptr || blocks.ptrs != nullptr)
        return;
    int64_t at = 0;
    for (size_t i = 0; i < out->size(); ++i) {
        (*out)[i] = at;
        at += blocks.counts[i] * element_bytes;
    }
}

inline uint8_t* block_start(const Blocks& blocks, int i, int64_t element_bytes, const std::vector<int64_t>& offsets) {
    if (blocks.ptrs != nullptr)
        return static_cast<uint8_t*>(blocks.ptrs[i]);
    int64_t offset = blocks.counts != nullptr ? offsets[size_t(i)] : i * blocks.count * element_bytes;
    return static_cast<uint8_t*>(blocks.base) + offset;
}

} // namespace collectives
