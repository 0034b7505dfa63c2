// First-fit ranges with merging of neighbours.
#include "transport/arena.h"

#include <algorithm>

#include "base/check.h"

namespace collectives {

Arena::Arena(int64_t begin, int64_t end, int64_t alignment) : alignment_(alignment) {
    COLLECTIVES_CHECK(begin % alignment == 0 && end >= begin);
    if (end > begin)
        free_[begin] = (end - begin) / alignment * alignment;
    free_total_ = (end - begin) / alignment * alignment;
}

int64_t Arena::take(int64_t bytes) {
    bytes = std::max(round_up(bytes), alignment_);
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
        auto [offset, available] = *it;
        if (available < bytes)
            continue;
        free_.erase(it);
        if (available > bytes)
            free_[offset + bytes] = available - bytes;
        taken_[offset] = bytes;
        free_total_ -= bytes;
        taken_total_ += bytes;
        return offset;
    }
    return -1;
}

void Arena::insert_free(int64_t offset, int64_t bytes) {
    free_total_ += bytes;
    taken_total_ -= bytes;
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && offset + bytes == next->first) {
        bytes += next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin()) {
        auto previous = std::prev(next);
        if (previous->first + previous->second == offset) {
            previous->second += bytes;
            return;
        }
    }
    free_[offset] = bytes;
}

void Arena::give(int64_t offset) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = taken_.find(offset);
    COLLECTIVES_CHECK(it != taken_.end());
    int64_t bytes = it->second;
    taken_.erase(it);
    insert_free(offset, bytes);
}

void Arena::trim(int64_t offset, int64_t bytes) {
    bytes = std::max(round_up(bytes), alignment_);
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = taken_.find(offset);
    COLLECTIVES_CHECK(it != taken_.end() && bytes <= it->second);
    int64_t rest = it->second - bytes;
    it->second = bytes;
    if (rest > 0)
        insert_free(offset + bytes, rest);
}

int64_t Arena::used_bytes() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return taken_total_;
}

int64_t Arena::free_bytes() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return free_total_;
}

int64_t Arena::size_of(int64_t offset) const {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = taken_.find(offset);
    return it == taken_.end() ? 0 : it->second;
}

} // namespace collectives
