// What is wrong with a call's arguments on this rank alone. Everything that a peer could disagree about is the
// fingerprint's business.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/communicator_impl.h"

namespace collectives {
namespace {

struct Range {
    uintptr_t begin, end;
};

class Checker {
  public:
    Checker(const Call& call, int rank, int world_size)
        : call_(call), rank_(rank), n_(world_size), size_(int64_t(size_of(call.dtype))) {}

    Status check() {
        const int one = 1;
        switch (call_.kind) {
        case Collective::barrier: return {};
        case Collective::all_reduce:
            COLLECTIVES_RETURN_IF_ERROR(op_fits());
            COLLECTIVES_RETURN_IF_ERROR(sides(one, one));
            COLLECTIVES_RETURN_IF_ERROR(same_count(0, 0));
            return no_overlap(one, one, 0, 0);
        case Collective::reduce:
            COLLECTIVES_RETURN_IF_ERROR(op_fits());
            COLLECTIVES_RETURN_IF_ERROR(root_fits());
            COLLECTIVES_RETURN_IF_ERROR(sides(one, is_root() ? 1 : 0));
            return is_root() ? in_and_out(one, one, 0, 0) : Status();
        case Collective::broadcast:
            COLLECTIVES_RETURN_IF_ERROR(root_fits());
            COLLECTIVES_RETURN_IF_ERROR(sides(one, one));
            return in_and_out(one, one, 0, 0);
        case Collective::reduce_scatter:
            COLLECTIVES_RETURN_IF_ERROR(op_fits());
            COLLECTIVES_RETURN_IF_ERROR(sides(n_, one));
            return in_and_out(n_, one, rank_, 0);
        case Collective::all_gather:
            COLLECTIVES_RETURN_IF_ERROR(sides(one, n_));
            COLLECTIVES_RETURN_IF_ERROR(outs_apart());
            return in_and_out(one, n_, 0, rank_);
        case Collective::gather:
            COLLECTIVES_RETURN_IF_ERROR(root_fits());
            COLLECTIVES_RETURN_IF_ERROR(sides(one, is_root() ? n_ : 0));
            if (is_root())
                COLLECTIVES_RETURN_IF_ERROR(outs_apart());
            return is_root() ? even_and(in_and_out(one, n_, 0, rank_), call_.out, "out") : Status();
        case Collective::scatter:
            COLLECTIVES_RETURN_IF_ERROR(root_fits());
            COLLECTIVES_RETURN_IF_ERROR(sides(is_root() ? n_ : 0, one));
            return is_root() ? even_and(in_and_out(n_, one, rank_, 0), call_.in, "in") : Status();
        case Collective::all_to_all:
            COLLECTIVES_RETURN_IF_ERROR(sides(n_, n_));
            COLLECTIVES_RETURN_IF_ERROR(same_count(rank_, rank_));
            COLLECTIVES_RETURN_IF_ERROR(outs_apart());
            return all_to_all_overlap();
        }
        return Status(Code::invalid_argument, "unknown collective");
    }

  private:
    bool is_root() const { return call_.root == rank_; }
    Status wrong(const std::string& what) const {
        return Status(Code::invalid_argument, std::string(collective_name(call_.kind)) + ": " + what);
    }
    Status op_fits() const {
        if (supports(call_.op, call_.dtype))
            return {};
        return Status(Code::unsupported,
                      std::string(collective_name(call_.kind)) + ": " + why_unsupported(call_.op, call_.dtype));
    }
    Status root_fits() const {
        if (call_.root >= 0 && call_.root < n_)
            return {};
        return wrong("root " + std::to_string(call_.root) + " is outside the group's ranks 0 to " +
                     std::to_string(n_ - 1));
    }
    uint8_t* start(const Blocks& blocks, int i) const {
        if (blocks.ptrs != nullptr)
            return static_cast<uint8_t*>(blocks.ptrs[i]);
        int64_t before = 0;
        for (int j = 0; j < i; ++j) before += blocks.count_of(j);
        return static_cast<uint8_t*>(blocks.base) + before * size_;
    }
    Status side(const Blocks& blocks, int n, const char* name) const {
        int64_t all = 0;
        for (int i = 0; i < n; ++i) {
            int64_t count = blocks.count_of(i);
            if (count < 0)
                return wrong(std::string(name) + " has a negative count " + std::to_string(count));
            if (count > INT64_MAX / size_ - all)
                return wrong(std::string(name) + " is larger than the address space");
            all += count;
            if (count > 0 && blocks.ptrs != nullptr && blocks.ptrs[i] == nullptr)
                return wrong(std::string(name) + " has no data for block " + std::to_string(i));
        }
        if (all > 0 && blocks.ptrs == nullptr && blocks.base == nullptr)
            return wrong(std::string(name) + " has no data");
        return {};
    }
    Status sides(int n_in, int n_out) const {
        COLLECTIVES_RETURN_IF_ERROR(side(call_.in, n_in, "in"));
        return side(call_.out, n_out, "out");
    }
    Status same_count(int in, int out) const {
        int64_t a = call_.in.count_of(in), b = call_.out.count_of(out);
        if (a == b)
            return {};
        return wrong("this rank's block has " + std::to_string(a) + " elements in `in` but " + std::to_string(b) +
                     " in `out`");
    }
    Range range(const Blocks& blocks, int i) const {
        auto begin = reinterpret_cast<uintptr_t>(start(blocks, i));
        return {begin, begin + uintptr_t(blocks.count_of(i) * size_)};
    }
    /// Every in block against every out block; only (may_in, may_out) may be the same memory, exactly.
    Status no_overlap(int n_in, int n_out, int may_in, int may_out) const {
        bool flat_in = n_in == 1 || call_.in.ptrs == nullptr, flat_out = n_out == 1 || call_.out.ptrs == nullptr;
        if (flat_in && flat_out) { // the common case in one comparison
            Range a{range(call_.in, 0).begin, range(call_.in, n_in - 1).end};
            Range b{range(call_.out, 0).begin, range(call_.out, n_out - 1).end};
            if (a.end <= b.begin || b.end <= a.begin)
                return {};
        }
        for (int i = 0; i < n_in; ++i)
            for (int j = 0; j < n_out; ++j) {
                Range a = range(call_.in, i), b = range(call_.out, j);
                bool apart = a.end <= b.begin || b.end <= a.begin || a.begin == a.end || b.begin == b.end;
                bool same = i == may_in && j == may_out && a.begin == b.begin && a.end == b.end;
                if (!apart && !same)
                    return wrong("in and out overlap; they must be the same memory exactly (in place) or apart");
            }
        return {};
    }
    /// Blocks of a list that are written to; adjacent ones cannot overlap.
    Status outs_apart() const {
        if (call_.out.ptrs == nullptr)
            return {};
        struct Place {
            Range range;
            int block;
        };
        static thread_local std::vector<Place> places; // kept, so that a call allocates nothing
        places.clear();
        for (int i = 0; i < n_; ++i)
            if (const Range r = range(call_.out, i); r.begin != r.end)
                places.push_back({r, i});
        std::sort(places.begin(), places.end(),
                  [](const Place& a, const Place& b) { return a.range.begin < b.range.begin; });
        for (size_t i = 1; i < places.size(); ++i) {
            const Place &a = places[i - 1], &b = places[i];
            if (b.range.begin < a.range.end)
                return wrong("blocks " + std::to_string(std::min(a.block, b.block)) + " and " +
                             std::to_string(std::max(a.block, b.block)) +
                             " of out overlap; each rank's block needs memory of its own");
        }
        return {};
    }
    Status in_and_out(int n_in, int n_out, int in, int out) const {
        COLLECTIVES_RETURN_IF_ERROR(same_count(in, out));
        return no_overlap(n_in, n_out, in, out);
    }
    Status even_and(Status status, const Blocks& blocks, const char* name) const {
        for (int i = 1; i < n_ && status.ok(); ++i)
            if (blocks.count_of(i) != blocks.count_of(0))
                return wrong(std::string("the blocks of ") + name + " must have the same size");
        return status;
    }
    Status all_to_all_overlap() const {
        bool in_place = true; // the same blocks at the same places
        for (int i = 0; i < n_ && in_place; ++i) {
            Range a = range(call_.in, i), b = range(call_.out, i);
            in_place = a.begin == b.begin && a.end == b.end;
        }
        return in_place ? Status() : no_overlap(n_, n_, -1, -1);
    }

    const Call& call_;
    const int rank_, n_;
    const int64_t size_;
};

} // namespace

Status CommunicatorImpl::validate(const Call& call) const {
    return Checker(call, config_.rank, config_.world_size).check();
}

} // namespace collectives
