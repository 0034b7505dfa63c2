// CommunicatorImpl: a communicator over a group's shared memory: runs blocking calls on the caller's thread, queues
// asynchronous ones for the progress engine, owns the first failure. Private to the engine.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/communicator.h"
#include "engine/fabric.h"
#include "engine/progress.h"

namespace collectives {

class CommunicatorImpl;

/// A collective in the queue of its communicator.
class CollectiveRequest final : public Request {
  public:
    CollectiveRequest(std::shared_ptr<CommunicatorImpl> communicator, const Call& call, int world_size,
                      int64_t timeout_ns);
    void abort() override;
    /// Unpacks, completes, runs the callbacks.
    void finish(const Status& status);

  protected:
    Status drive_until_done(int64_t timeout_ns) override;

  private:
    friend class CommunicatorImpl;
    std::shared_ptr<CommunicatorImpl> communicator_;
    Call call_;
    std::vector<int64_t> in_counts_, out_counts_;
    std::vector<void*> in_ptrs_, out_ptrs_;
    int64_t timeout_ns_ = 0, deadline_ns_ = 0;
    std::function<void()> before_, after_; // packing and unpacking of coalesced calls
};

/// A message on its way.
class MessageRequest final : public Request, public Completion {
  public:
    MessageRequest(std::shared_ptr<CommunicatorImpl> communicator, std::string what, int64_t timeout_ns);
    void message_done(const Status& status, int source_rank) override;
    void abort() override;

  protected:
    Status drive_until_done(int64_t timeout_ns) override;

  private:
    friend class CommunicatorImpl;
    std::shared_ptr<CommunicatorImpl> communicator_;
    std::shared_ptr<Request> self_; // keeps it alive until the messenger is done with it
    std::string what_;
    int64_t timeout_ns_, deadline_ns_;
};

/// Several requests that end together.
class JointRequest final : public Request {
  public:
    explicit JointRequest(std::vector<RequestPtr> parts);
    static RequestPtr make(std::vector<RequestPtr> parts);
    void abort() override;

  protected:
    Status drive_until_done(int64_t timeout_ns) override;

  private:
    std::vector<RequestPtr> parts_;
    std::atomic<int> left_;
};

/// A request that ended before it began.
class EndedRequest final : public Request {
  public:
    explicit EndedRequest(const Status& status) { complete(status); }
    void abort() override {}

  protected:
    Status drive_until_done(int64_t) override { return status(); }
};

class CommunicatorImpl final : public Communicator {
  public:
    CommunicatorImpl(LocalNode& node, CommunicatorConfig config, std::unique_ptr<Group> group,
                     std::unique_ptr<WireGroup> wire, std::unique_ptr<TwoLevel> two_level,
                     std::unique_ptr<Bootstrap> bootstrap);
    ~CommunicatorImpl() override;
    Status open();

    int rank() const override { return config_.rank; }
    int world_size() const override { return config_.world_size; }
    const CommunicatorConfig& config() const override { return config_; }
    Status validate(const Call& call) const override;
    Status run(const Call& call, int64_t timeout_ns) override;
    RequestPtr start(const Call& call, int64_t timeout_ns) override;
    RequestPtr start_coalesced(const std::vector<Call>& calls, int64_t timeout_ns) override;
    RequestPtr start_send(const void* data, int64_t bytes, int destination, uint32_t tag, int64_t timeout_ns) override;
    RequestPtr start_recv(void* data, int64_t bytes, int source, uint32_t tag, int64_t timeout_ns) override;
    Status split(int color, int key, const std::string& name, std::shared_ptr<Communicator>* out) override;
    Status shrink(const std::vector<int>& exclude, const std::string& name,
                  std::shared_ptr<Communicator>* out) override;
    Status error() const override;
    void abort(const std::string& reason) override;
    Status close(int64_t timeout_ns) override;
    void set_timeout(int64_t timeout_ns) override { timeout_ns_.store(timeout_ns); }
    uint64_t sequence() const override { return issued_.load(std::memory_order_relaxed); }
    std::string describe_group() const override;
    std::string describe_plan(const Call& call) const override;
    Status tune(int64_t most_bytes, std::string* path) override;
    std::string describe_links() const;
    std::string describe_wire_plan(const Call& call) const;
    std::string describe_level(const Call& call, int world_size, const LevelProfile& profile) const;

    /// For the progress engine: advances the queue without waiting. True when something moved.
    bool advance_queue(std::vector<EndedCollective>* ended);
    bool queue_empty() const { return queued_.load(std::memory_order_acquire) == 0; }
    /// A message that had already ended here failed at the receiver.
    void message_failed(const Status& status) { (void)fail(status, -1, nullptr); }
    /// An error when a member is dead that is one of these ranks of the job.
    Status death_among(const std::vector<int>& global_ranks) const;
    /// Looks at deadlines, peers and failures; fails the communicator when something is wrong. Now and then.
    void look_around();

  private:
    friend class CollectiveRequest;
    friend class MessageRequest;

    bool try_own() { return !owned_.exchange(true, std::memory_order_acquire); }
    void disown();
    int64_t timeout_or_default(int64_t timeout_ns) const;
    Status run_alone(const Call& call);
    Status run_inline(const Call& call, int64_t timeout_ns);
    Status check_usable() const;
    void enqueue(const std::shared_ptr<CollectiveRequest>& request);
    RequestPtr start_packed(const std::vector<Call>& calls, size_t first, size_t last, int64_t timeout_ns);
    std::string own_call(const Call& call) const;
    Status fail(const Status& cause, int culprit, const Call* call);
    Status fail_in(const std::string& what, const std::string& where, const Status& cause, int culprit);
    void record_counts(const Call& call, uint64_t sequence);
    Status operation_failed();
    Status mismatch_error(Group& group, int place);
    Status agree();
    Status measure_stores(Tuning* tuning);
    Status agree_on_links();
    Status use_profile(const std::string& text);
    Status share(std::string* text);
    struct TimedCall {
        Call call;
        const WireAlgorithm* row;
        int repeats;
        double predicted_ns = 0;
        int64_t bytes = 0;
        double median_ns = 0;
    };
    Status time_calls(std::vector<TimedCall>* calls);
    Status measure_links(bool lanes, LinkCosts* costs);
    Status measure_levels(LinkProfile* profile);
    Status tune_level(bool lanes, int64_t most_bytes, LevelProfile* level);
    std::string own_profile_path() const;
    void allow_ways(bool can_pull);
    int64_t piece_bytes() const;
    Status trouble(int64_t deadline_ns, int64_t timeout_ns);
    std::string waited_for();
    Status timeout_error(int64_t timeout_ns);
    void remember_message(const std::shared_ptr<MessageRequest>& request);
    std::string oldest_message();
    void look_at_messages();
    void look_for_closed();
    Status drain(int64_t timeout_ns);
    void look_for_interrupt(const std::string& what);
    void wait_late(const CollectiveRequest& request, int64_t timeout_ns);
    void message_late(const MessageRequest& request);
    Status message_error(const std::string& what, Status status);
    Status subgroup(const std::string& key, const std::vector<int>& ranks, const std::string& name,
                    std::function<Status()> watch, std::shared_ptr<Communicator>* out);
    RequestPtr start_message(bool sends, void* data, int64_t bytes, int peer, uint32_t tag, int64_t timeout_ns);

    LocalNode& node_;
    ProgressEngine& engine_;
    CommunicatorConfig config_;
    std::unique_ptr<Bootstrap> bootstrap_;
    PlannerConfig planner_;
    LinkProfile profile_; // between hosts
    Fabric fabric_;
    std::atomic<bool> owned_{false}; // whoever sets it drives the fabric's operation
    std::atomic<bool> failed_{false};
    std::atomic<bool> closed_{false};
    std::atomic<int> queued_{0};
    std::atomic<uint64_t> issued_{0};
    std::atomic<int64_t> timeout_ns_;
    mutable std::mutex mutex_; // guards the queue and the failure
    std::deque<std::shared_ptr<CollectiveRequest>> queue_;
    std::vector<std::weak_ptr<MessageRequest>> messages_; // those under way, and some that have ended
    size_t sweep_messages_at_ = 0;
    int64_t next_message_deadline_ns_ = kForever; // none of those under way is due before
    Status failure_;
    std::vector<bool> told_closed_; // the messenger knows that this rank has closed the group
    int shrinks_ = 0;
    uint64_t message_id_ = 0;
    int64_t operation_started_ns_ = 0;
};

} // namespace collectives
