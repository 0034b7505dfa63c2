// Ranks as threads of one process, over inproc or another row of the transport table: a bootstrap, and a runner that
// gives each rank its own node and communicator. For C++ tests only.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/communicator.h"
#include "transport/faults.h"
#include "transport/transports.h"

namespace collectives::testing {

/// A board where ranks leave their strings, round by round.
class Board {
  public:
    Status all_gather(const std::string& key, int rank, int n, std::string_view mine, std::vector<std::string>* all,
                      int64_t deadline_ns, const std::function<Status()>& watch = {}) {
        std::unique_lock<std::mutex> lock(mutex_);
        auto& round = rounds_[key];
        round[rank] = std::string(mine);
        arrived_.notify_all();
        while (int(rounds_[key].size()) < n) {
            if (monotonic_ns() >= deadline_ns)
                return Status(Code::timeout, "ranks are missing");
            arrived_.wait_for(lock, std::chrono::milliseconds(5));
            if (!watch)
                continue;
            lock.unlock(); // it may end operations, whose callbacks may come here
            Status status = watch();
            lock.lock();
            COLLECTIVES_RETURN_IF_ERROR(status);
        }
        all->clear();
        for (auto& [r, text] : rounds_[key]) all->push_back(text);
        return {};
    }

  private:
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::map<std::string, std::map<int, std::string>> rounds_;
};

class ThreadBootstrap final : public Bootstrap {
  public:
    ThreadBootstrap(std::shared_ptr<Board> board, std::string name, int rank, int n)
        : board_(std::move(board)), name_(std::move(name)), rank_(rank), n_(n) {}
    Status all_gather(std::string_view mine, std::vector<std::string>* all, int64_t deadline_ns) override {
        return board_->all_gather(name_ + "/" + std::to_string(round_++), rank_, n_, mine, all, deadline_ns, watch);
    }
    std::unique_ptr<Bootstrap> sub(const std::string& name, const std::vector<int>& ranks) override {
        int index = 0;
        std::string key = name_ + "/" + name + "/" + std::to_string(subs_[name]++);
        for (int q : ranks) {
            key += "," + std::to_string(q);
        }
        for (size_t i = 0; i < ranks.size(); ++i)
            if (ranks[i] == rank_)
                index = int(i);
        return std::make_unique<ThreadBootstrap>(board_, key, index, int(ranks.size()));
    }

  private:
    std::shared_ptr<Board> board_;
    std::string name_;
    int rank_, n_;
    int round_ = 0;
    std::map<std::string, int> subs_;
};

struct RankOptions {
    int64_t segment_bytes = 4 << 20;
    int64_t timeout_ns = 20 * kSecond;
    int64_t staging_bytes = 0, piece_bytes = 0, mapped_from_bytes = 0, streaming_from_bytes = 0, pull_from_bytes = 0;
    std::string algorithm;
    std::string streaming_stores = "off";
    int64_t spin_ns = 2000;
    std::string transport = "inproc"; // a row of the table that works between threads
    std::string link_profiles = "measure";
    std::vector<std::string> islands; // by rank: which do not reach each other by memory; empty: all do
    FaultPlan faults;                 // for rows that wrap; each rank draws from a seed of its own
};

inline std::unique_ptr<Node> make_node(const RankOptions& options, int rank) {
    NodeConfig config;
    config.host = "host" + std::to_string(rank); // tells the ranks apart in errors
    config.segment_bytes = options.segment_bytes;
    config.heap_bytes = 64 << 20;
    config.spin_ns = options.spin_ns;
    config.streaming_stores = options.streaming_stores;
    config.link_profiles = options.link_profiles;
    if (!options.islands.empty()) {
        config.island = options.islands[size_t(rank)];
        config.interface = "127.0.0.1";
    }
    if (find_transport(options.transport)->wraps) {
        FaultPlan plan = options.faults;
        plan.seed = random_bits(plan.seed, 0, uint64_t(rank));
        config.faults = std::make_shared<const FaultPlan>(plan);
    }
    std::unique_ptr<Node> node;
    if (Status status = create_node(options.transport, config, &node); !status.ok())
        throw std::runtime_error(status.message());
    return node;
}

/// Runs `body(rank, communicator, node)` on n threads and joins them. The nodes outlive all ranks.
inline void run_ranks(int n, const std::function<void(int, Communicator&, Node&)>& body, RankOptions options = {}) {
    auto board = std::make_shared<Board>();
    std::vector<std::unique_ptr<Node>> nodes;
    for (int r = 0; r < n; ++r) nodes.push_back(make_node(options, r));
    std::vector<std::thread> threads;
    std::vector<std::string> errors(static_cast<size_t>(n));
    for (int r = 0; r < n; ++r)
        threads.emplace_back([&, r] {
            ThreadBootstrap bootstrap(board, "world", r, n);
            CommunicatorConfig config;
            config.rank = r;
            config.world_size = n;
            config.timeout_ns = options.timeout_ns;
            config.staging_bytes = options.staging_bytes;
            config.piece_bytes = options.piece_bytes;
            config.mapped_from_bytes = options.mapped_from_bytes;
            config.streaming_from_bytes = options.streaming_from_bytes;
            config.pull_from_bytes = options.pull_from_bytes;
            config.algorithm = options.algorithm;
            if (options.islands.empty())
                config.transports = {options.transport};
            std::shared_ptr<Communicator> communicator;
            Status status = Communicator::create(*nodes[size_t(r)], config, bootstrap, &communicator);
            if (!status.ok()) {
                errors[size_t(r)] = status.message();
                return;
            }
            body(r, *communicator, *nodes[size_t(r)]);
        });
    for (auto& thread : threads) thread.join();
    for (auto& error : errors)
        if (!error.empty())
            throw std::runtime_error(error);
}

} // namespace collectives::testing
