// Rounds of messages through a c10d store. See store_bootstrap.h.
#include "bindings/store_bootstrap.h"

#include <Python.h>
#include <pybind11/pybind11.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/clock.h"
#include "bindings/store_timeout.h"

namespace py = pybind11;

namespace collectives {
namespace {

// Between two looks at the store; Ctrl-C and failures wait no longer either. The store's own wait is not used: TCPStore
// prints a warning whenever one runs out.
constexpr int64_t kFirstPause = 1 * kMillisecond;
constexpr int64_t kLongestPause = 50 * kMillisecond;
constexpr int64_t kVerdictBound = 10 * kSecond; // for the rank that decided to write down who came to a meeting

Status interrupted() { return {Code::interrupted, "interrupted while waiting for the other ranks"}; }

Status store_failed(const char* what) {
    return {Code::peer_failed, std::string("the store of the process group failed (the process that hosts it may have "
                                           "ended): ") +
                                   what};
}

/// Calls `f` and turns what a store throws into a Status. A Python store's KeyboardInterrupt stays set.
template <typename F> Status guarded(F&& f) {
    try {
        f();
        return {};
    } catch (py::error_already_set& error) {
        py::gil_scoped_acquire gil;
        if (!error.matches(PyExc_KeyboardInterrupt))
            return store_failed(error.what());
        error.restore();
        return interrupted();
    } catch (const c10::Error& error) {
        return store_failed(error.what_without_backtrace());
    } catch (const std::exception& error) {
        return store_failed(error.what());
    }
}

std::vector<uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

/// One request, which may take no longer than the deadline allows.
template <typename F> Status ask(c10d::Store& store, int64_t deadline_ns, F&& f) {
    return guarded([&] {
        const StoreTimeout bounded(store, deadline_ns);
        f();
    });
}

Status find_missing(c10d::Store& store, const std::vector<std::string>& keys, int64_t deadline_ns,
                    std::vector<int>* missing) {
    missing->clear();
    return ask(store, deadline_ns, [&] {
        for (size_t i = 0; i < keys.size(); ++i)
            if (!store.check({keys[i]}))
                missing->push_back(static_cast<int>(i));
    });
}

std::vector<std::vector<uint8_t>> read_all(c10d::Store& store, const std::vector<std::string>& keys) {
    if (store.hasExtendedApi())
        return store.multiGet(keys);
    std::vector<std::vector<uint8_t>> values;
    values.reserve(keys.size());
    for (const std::string& key : keys) values.push_back(store.get(key));
    return values;
}

std::string seconds_of(int64_t ns) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(ns) / 1e9);
    return text;
}

std::string encode_ranks(const std::vector<int>& ranks) {
    std::string text;
    for (const int rank : ranks) text += std::to_string(rank) + ",";
    return text;
}

std::vector<int> decode_ranks(const std::string& text) {
    std::vector<int> ranks;
    for (size_t at = 0, comma; (comma = text.find(',', at)) != std::string::npos; at = comma + 1)
        ranks.push_back(std::stoi(text.substr(at, comma - at)));
    return ranks;
}

} // namespace

bool signal_raised() {
    if (!Py_IsInitialized())
        return false;
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool raised = PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    return raised;
}

ReleaseGil::ReleaseGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

ReleaseGil::~ReleaseGil() {
    if (state_ != nullptr)
        PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
}

Status wait_for_keys(c10d::Store& store, const std::vector<std::string>& keys, int64_t deadline_ns,
                     std::vector<int>* missing, const std::function<Status()>& watch) {
    missing->clear();
    const ReleaseGil no_gil;
    for (int64_t pause_ns = kFirstPause;; pause_ns = std::min(2 * pause_ns, kLongestPause)) {
        bool there = false;
        COLLECTIVES_RETURN_IF_ERROR(ask(store, deadline_ns, [&] { there = store.check(keys); }));
        if (there)
            return {};
        if (signal_raised())
            return interrupted();
        if (watch)
            COLLECTIVES_RETURN_IF_ERROR(watch());
        const int64_t left_ns = deadline_ns - monotonic_ns();
        if (left_ns <= 0)
            break;
        std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(pause_ns, left_ns)));
    }
    COLLECTIVES_RETURN_IF_ERROR(find_missing(store, keys, deadline_ns, missing));
    return missing->empty() ? Status() : Status(Code::timeout, "keys of the store did not appear in time");
}

StoreBootstrap::StoreBootstrap(StorePtr store, int rank, int world_size, std::string name,
                               std::vector<int> global_ranks)
    : store_(std::move(store)), rank_(rank), world_size_(world_size), name_(std::move(name)),
      global_ranks_(std::move(global_ranks)) {}

Status StoreBootstrap::begin(int64_t deadline_ns) {
    if (generation_ > 0)
        return {};
    return ask(*store_, deadline_ns,
               [&] { generation_ = store_->add("collectives/generation/" + std::to_string(rank_), 1); });
}

std::string StoreBootstrap::key(int rank) const {
    return "collectives/" + std::to_string(generation_) + "/" + std::to_string(round_) + "/" + std::to_string(rank);
}

std::string StoreBootstrap::name_of(int rank) const {
    const auto index = static_cast<size_t>(rank);
    if (index >= global_ranks_.size() || global_ranks_[index] == rank)
        return std::to_string(rank);
    return std::to_string(rank) + " (global rank " + std::to_string(global_ranks_[index]) + ")";
}

Status StoreBootstrap::all_gather(std::string_view mine, std::vector<std::string>* all, int64_t deadline_ns) {
    if (world_size_ == 1) {
        all->assign(1, std::string(mine));
        return {};
    }
    const ReleaseGil no_gil;
    const int64_t began_ns = monotonic_ns();
    COLLECTIVES_RETURN_IF_ERROR(begin(deadline_ns));
    std::vector<std::string> keys;
    keys.reserve(static_cast<size_t>(world_size_));
    for (int rank = 0; rank < world_size_; ++rank) keys.push_back(key(rank));
    COLLECTIVES_RETURN_IF_ERROR(
        ask(*store_, deadline_ns, [&] { store_->set(keys[static_cast<size_t>(rank_)], bytes_of(mine)); }));

    std::vector<int> missing;
    const Status waited = wait_for_keys(*store_, keys, deadline_ns, &missing, watch);
    if (waited.code() == Code::timeout && !missing.empty()) {
        std::string names;
        for (const int rank : missing) names += (names.empty() ? "" : ", ") + name_of(rank);
        return {Code::timeout, "group " + name_ + ": rank " + name_of(rank_) + " waited " +
                                   seconds_of(monotonic_ns() - began_ns) + " for rank" +
                                   (missing.size() > 1 ? "s " : " ") + names + " of " + std::to_string(world_size_) +
                                   " to join: not started, ended early, or making another group"};
    }
    COLLECTIVES_RETURN_IF_ERROR(waited);
    COLLECTIVES_RETURN_IF_ERROR(ask(*store_, deadline_ns, [&] {
        all->clear();
        for (const auto& value : read_all(*store_, keys)) all->push_back(text_of(value));
    }));
    ++round_;
    return {};
}

std::unique_ptr<Bootstrap> StoreBootstrap::sub(const std::string& name, const std::vector<int>& ranks) {
    std::vector<int> global;
    for (const int rank : ranks) {
        const auto index = static_cast<size_t>(rank);
        global.push_back(index < global_ranks_.size() ? global_ranks_[index] : rank);
    }
    const auto me = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    auto store = c10::make_intrusive<c10d::PrefixStore>("collectives/sub/" + name, store_);
    return std::make_unique<StoreBootstrap>(std::move(store), static_cast<int>(me), static_cast<int>(ranks.size()),
                                            name, std::move(global));
}

Status meet(c10d::Store& store, const std::string& place, int rank, int world_size, int64_t deadline_ns,
            std::vector<int>* missing) {
    missing->clear();
    const ReleaseGil no_gil;
    const std::string base = place + "/";
    std::vector<std::string> keys;
    for (int peer = 0; peer < world_size; ++peer) keys.push_back(base + std::to_string(peer));
    COLLECTIVES_RETURN_IF_ERROR(
        ask(store, deadline_ns, [&] { store.set(keys[static_cast<size_t>(rank)], bytes_of("here")); }));
    const Status waited = wait_for_keys(store, keys, deadline_ns, missing);
    if (!waited.ok() && waited.code() != Code::timeout)
        return waited;

    // The first to conclude decides for all. The others only read, so that nobody can blame another list.
    int64_t order = 0;
    const std::string verdict = base + "verdict";
    const int64_t end_ns = deadline_after(monotonic_ns(), kVerdictBound);
    COLLECTIVES_RETURN_IF_ERROR(ask(store, end_ns, [&] { order = store.add(base + "concluded", 1); }));
    if (order == 1)
        return ask(store, end_ns, [&] { store.set(verdict, bytes_of(encode_ranks(*missing) + ";")); });
    std::vector<int> unused;
    COLLECTIVES_RETURN_IF_ERROR(wait_for_keys(store, {verdict}, end_ns, &unused));
    return ask(store, end_ns, [&] { *missing = decode_ranks(text_of(store.get(verdict))); });
}

} // namespace collectives
