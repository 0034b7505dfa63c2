// Building a program. See program.h.
#include "algorithms/program.h"

#include "base/check.h"

namespace collectives {

void Program::clear() {
    actions_.clear();
    places_.clear();
    edges_.clear();
    successors_.clear();
    for (int& n : sends_) n = 0;
    for (auto& list : receives_) list.clear();
    scratch_bytes_ = 0;
}

int Program::add(ActionKind kind, int peer, int64_t count, std::span<const int> after) {
    int number = size();
    actions_.push_back({kind, true, int16_t(peer), 0, 0, int32_t(places_.size()), count, count, 0, 0, 0, 0});
    for (int before : after) {
        if (before < 0)
            continue;
        COLLECTIVES_CHECK(before < number);
        edges_.emplace_back(before, number);
        ++actions_.back().n_before;
    }
    return number;
}

int Program::send(int peer, Place from, int64_t count, std::initializer_list<int> after, int64_t whole) {
    return send(peer, from, count, std::span<const int>(after.begin(), after.size()), whole);
}

int Program::send(int peer, Place from, int64_t count, std::span<const int> after, int64_t whole) {
    int number = add(ActionKind::send, peer, count, after);
    actions_.back().whole = whole < 0 ? count : whole;
    actions_.back().slot = uint32_t(sends_[size_t(peer)]++);
    place(from);
    return number;
}

int Program::receive(int peer, Place to, int64_t count, std::initializer_list<int> after, int64_t whole) {
    int number = add(ActionKind::receive, peer, count, {after.begin(), after.size()});
    actions_.back().whole = whole < 0 ? count : whole;
    auto& list = receives_[size_t(peer)];
    actions_.back().slot = uint32_t(list.size());
    list.push_back(number);
    place(to);
    return number;
}

int Program::copy(Place to, Place from, int64_t count, std::initializer_list<int> after) {
    int number = add(ActionKind::copy, 0, count, {after.begin(), after.size()});
    actions_.back().n_dsts = actions_.back().n_srcs = 1;
    place(to);
    place(from);
    return number;
}

int Program::reduce(std::span<const Place> dsts, std::span<const Place> srcs, int64_t count, std::span<const int> after,
                    bool finishes) {
    int number = add(ActionKind::reduce, 0, count, after);
    actions_.back().n_dsts = int16_t(dsts.size());
    actions_.back().n_srcs = int16_t(srcs.size());
    actions_.back().finishes = finishes;
    for (Place p : dsts) place(p);
    for (Place p : srcs) place(p);
    return number;
}

int64_t Program::take_scratch(int64_t bytes) {
    int64_t at = scratch_bytes_;
    scratch_bytes_ += (bytes + 63) / 64 * 64;
    return at;
}

void Program::finish() {
    int32_t at = 0;
    for (auto& [before, after] : edges_) ++actions_[size_t(before)].n_after;
    for (Action& a : actions_) {
        a.first_after = at;
        at += a.n_after;
        a.n_after = 0;
    }
    successors_.resize(size_t(at) + 1); // one more: a program without edges has a place to point at, too
    for (auto& [before, after] : edges_) {
        Action& a = actions_[size_t(before)];
        successors_[size_t(a.first_after + a.n_after++)] = after;
    }
}

} // namespace collectives
