// Arena: hands out ranges of a region by offset (first fit, lines of 64 bytes by default). Knows no addresses: it serves
// the segment and the shared heap alike. Thread-safe. Used by transport/node.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace collectives {

class Arena {
  public:
    Arena(int64_t begin, int64_t end, int64_t alignment = 64);

    /// Offset of a free range of `bytes` (rounded up to the alignment), or -1 when there is none.
    int64_t take(int64_t bytes);
    /// Gives back what `take` returned, whole.
    void give(int64_t offset);
    /// Gives back the end of a range, keeping its first `bytes`.
    void trim(int64_t offset, int64_t bytes);

    int64_t used_bytes() const;
    int64_t free_bytes() const;
    int64_t size_of(int64_t offset) const; // bytes of the range taken at `offset`; 0 when it is none

  private:
    void insert_free(int64_t offset, int64_t bytes);
    int64_t round_up(int64_t bytes) const { return (bytes + alignment_ - 1) / alignment_ * alignment_; }

    const int64_t alignment_;
    mutable std::mutex mutex_;
    std::map<int64_t, int64_t> free_;  // offset -> bytes, never adjacent
    std::map<int64_t, int64_t> taken_; // offset -> bytes
    int64_t free_total_ = 0;
    int64_t taken_total_ = 0;
};

} // namespace collectives
