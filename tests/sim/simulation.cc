// Running the ranks' threads, watching that they end, and looking for what they left behind.
#include "simulation.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "engine/progress.h"
#include "rank.h"

namespace collectives::sim {
namespace {

constexpr int64_t kPatience = 90 * kSecond; // for a step of all ranks, before it counts as hanging
constexpr int64_t kRingBytes = 64 << 10;    // of the messages to one peer, kept as long as the node lives

std::unique_ptr<World> make_world(uint64_t seed, int64_t scale) {
    auto world = std::make_unique<World>();
    world->script = make_script(seed);
    world->scale = scale;
    const Script& script = world->script;
    for (int r = 0; r < script.world_size; ++r) {
        testing::RankOptions options;
        options.transport = "faulty";
        options.spin_ns = script.spin_ns;
        options.faults = script.faults;
        if (r == script.victim) {
            options.faults.drop_after_publications = script.drop_after;
            options.faults.silent_death = script.silent;
        }
        world->nodes.push_back(testing::make_node(options, r));
    }
    return world;
}

/// Runs `step` of all ranks at once and waits for all.
class Threads {
  public:
    Threads(World& world, std::vector<std::unique_ptr<Rank>>& ranks, const Settings& settings)
        : world_(world), ranks_(ranks), settings_(settings) {}

    void run(void (Rank::*step)()) {
        std::vector<std::thread> threads;
        running_ = int(ranks_.size());
        for (auto& rank : ranks_)
            threads.emplace_back([this, step, raw = rank.get()] {
                ((*raw).*step)();
                std::lock_guard<std::mutex> lock(mutex_);
                --running_;
                ended_.notify_all();
            });
        std::unique_lock<std::mutex> lock(mutex_);
        auto patience = std::chrono::nanoseconds(kPatience * settings_.scale);
        if (!ended_.wait_for(lock, patience, [this] { return running_ == 0; }))
            give_up();
        lock.unlock();
        for (auto& thread : threads) thread.join();
    }

  private:
    [[noreturn]] void give_up() {
        std::string text = "simulation: ranks hang\n" + text_of(world_.script) + "\n";
        for (auto& rank : ranks_) text += "  " + rank->where() + "\n";
        if (std::string wrong = world_.first_wrong(); !wrong.empty())
            text += "  before that: " + wrong + "\n";
        std::fprintf(stderr, "%sreplay: %s%llu\n", text.c_str(), settings_.replay.c_str(),
                     static_cast<unsigned long long>(world_.script.seed));
        std::abort();
    }

    World& world_;
    std::vector<std::unique_ptr<Rank>>& ranks_;
    const Settings& settings_;
    std::mutex mutex_;
    std::condition_variable ended_;
    int running_ = 0;
};

/// What a rank that did not die still holds after it has let go of everything, or "".
std::string leftovers(LocalNode& node, int peers, int abandoned) {
    std::string text;
    for (int attempt = 0; attempt < 200; ++attempt) { // the progress thread drops its own references in its own time
        if (attempt > 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        node.collect_garbage();
        text.clear();
        // A rank that gave up joining leaves its control block behind, for peers may look at it.
        int64_t used = node.segment_used_bytes(), rings = peers * kRingBytes;
        if (used < rings || used > rings + abandoned * int64_t(sizeof(ControlBlock)))
            text += std::to_string(used) + " bytes of the segment are in use, " + std::to_string(rings) +
                    " of them by rings; ";
        if (node.heap_used_bytes() != 0)
            text += std::to_string(node.heap_used_bytes()) + " bytes of the shared heap are in use; ";
        if (ProgressEngine::of(node).messenger().anything_pending())
            text += "a message is still under way; ";
        if (text.empty())
            break;
    }
    return text;
}

} // namespace

int64_t default_scale() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return 4;
#else
    return 1;
#endif
}

std::string simulate(uint64_t seed, const Settings& settings, Tally* tally) {
    std::unique_ptr<World> world = make_world(seed, settings.scale);
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int r = 0; r < world->script.world_size; ++r) ranks.push_back(std::make_unique<Rank>(*world, r));
    Threads threads(*world, ranks, settings);
    threads.run(&Rank::play);
    threads.run(&Rank::go_on);
    threads.run(&Rank::finish);
    const bool somebody_is_silent = world->script.silent && world->victim_is_dead(); // it may come back: memory is kept
    const bool looks = !somebody_is_silent && !world->incomplete.load();             // else rings are missing
    for (int r = 0; looks && r < world->script.world_size; ++r)
        if (!ranks[size_t(r)]->dead())
            if (std::string left =
                    leftovers(world->node(r), world->script.world_size - 1, ranks[size_t(r)]->abandoned());
                !left.empty())
                world->wrong(r, "after the end: " + left);
    ranks.clear();
    tally->results += world->results.load();
    tally->errors += world->errors.load();
    tally->shrinks += world->shrinks.load();
    if (world->victim_is_dead())
        ++(world->script.silent ? tally->silent_deaths : tally->deaths);
    std::string wrong = world->first_wrong();
    return wrong.empty() ? "" : text_of(world->script) + ": " + wrong;
}

} // namespace collectives::sim
