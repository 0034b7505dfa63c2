// Rank: one rank of a simulation, on a thread of its own: takes the script's actions and holds every outcome against what
// must be true. For the simulation only.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/communicator.h"
#include "engine/rank_threads.h"
#include "transport/local_node.h"
#include "work.h"

namespace collectives::sim {

/// What the ranks of one simulation share.
struct World {
    Script script;
    int64_t scale = 1; // how much more patient than usual: sanitizers, a busy machine
    std::shared_ptr<testing::Board> board = std::make_shared<testing::Board>();
    std::vector<std::unique_ptr<Node>> nodes;
    std::atomic<int64_t> died_ns{0};                        // when the victim's thread noticed its own death
    std::atomic<bool> incomplete{false};                    // the victim died before all had joined
    std::atomic<int64_t> results{0}, errors{0}, shrinks{0}; // for the tally

    LocalNode& node(int rank) const { return static_cast<LocalNode&>(*nodes[size_t(rank)]); }
    bool victim_is_dead() const { return script.victim >= 0 && node(script.victim).faults()->dead(); }
    int64_t timeout_ns() const { return (script.silent ? 1500 * kMillisecond : 30 * kSecond) * scale; }

    /// Notes the first thing that is wrong.
    void wrong(int rank, const std::string& what);
    std::string first_wrong();

  private:
    std::mutex mutex_;
    std::string first_wrong_;
};

class Rank {
  public:
    Rank(World& world, int rank);

    /// Joins the world and plays the script, until its end or its own death.
    void play();
    /// After everybody's play: goes on with the survivors, if somebody died.
    void go_on();
    /// Lets go of everything.
    void finish();

    bool dead() const { return world_.node(rank_).faults()->dead(); }
    std::string where() const; // the action in progress
    int abandoned() const { return abandoned_; }

  private:
    struct Pending {
        RequestPtr request;
        int group;
        std::string what;
        std::shared_ptr<Memory> memory[2]; // what the operation reads and writes
        std::function<std::string()> check;
    };

    Communicator* group(int g) { return size_t(g) < groups_.size() ? groups_[size_t(g)].get() : nullptr; }
    int index_in(int g) const;
    bool usable(int g);
    void take(const Action& action);
    void collective(const Action& action);
    void coalesced(const Action& action);
    void message(const Action& action);
    void burst(const Action& action);
    void gather_any(const Action& action);
    void split(const Action& action);
    void close(int g);
    void abort(const Action& action);
    RequestPtr post_send(const Action& action, uint64_t salt, int which, int to, uint32_t tag, int64_t bytes);
    RequestPtr post_recv(const Action& action, uint64_t salt, int which, int from, int source, uint32_t tag,
                         int64_t bytes);
    void wait_all(int group = -1);
    void settle(Pending& pending, const Status& status);
    void judge(int group, const Status& status, const std::string& what);
    void check_words(int group, const Status& status, const std::string& what);
    void check_failed(int group);

    World& world_;
    const Script& script_;
    const int rank_;
    std::vector<std::shared_ptr<Communicator>> groups_; // null: not a member, closed, or never formed
    std::vector<bool> failed_;                          // by group: an error was seen and judged
    std::vector<Pending> pending_;
    std::vector<RequestPtr> kept_requests_;     // that failed, likewise
    std::vector<std::shared_ptr<Memory>> kept_; // of operations that failed, where peers may still reach it
    std::atomic<int> at_{-1};
    int64_t began_ns_ = 0; // of the wait in progress
    int abandoned_ = 0;    // groups that this rank gave up while they formed
};

} // namespace collectives::sim
