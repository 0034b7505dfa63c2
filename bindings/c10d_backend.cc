// Making a group's backend, and how its operations are run, started or deferred. See c10d_backend.h.
#include "bindings/c10d_backend.h"

#include <Python.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "bindings/communicator.h"
#include "bindings/errors.h"
#include "bindings/group_log.h"
#include "bindings/store_bootstrap.h"
#include "bindings/tensor_overlap.h"

namespace collectives {
namespace {

CommunicatorConfig config_of(const C10dOptions& options, int rank, int size) {
    CommunicatorConfig config;
    config.rank = rank;
    config.world_size = size;
    config.name = options.group_name.empty() ? "default" : options.group_name;
    config.timeout_ns = std::chrono::nanoseconds(options.timeout).count();
    config.transports = options.transports;
    config.interface = options.interface;
    config.algorithm = options.algorithm;
    config.deterministic = options.deterministic;
    config.staging_bytes = options.staging_bytes;
    config.global_ranks.assign(options.global_ranks_in_group.begin(), options.global_ranks_in_group.end());
    for (int q = 0; config.global_ranks.size() < static_cast<size_t>(size); ++q)
        config.global_ranks.push_back(q); // torch lists none for the group of all
    return config;
}

} // namespace

C10dOptions::C10dOptions(std::chrono::milliseconds timeout) : Options("collectives", timeout) {}

c10::intrusive_ptr<C10dBackend> C10dBackend::create(StorePtr store, int rank, int size, OptionsPtr options) {
    const ReleaseGil no_gil;
    Node* node = nullptr;
    throw_c10d(process_node(&node));
    const CommunicatorConfig config = config_of(*options, rank, size);
    auto bootstrap = std::make_shared<StoreBootstrap>(store, rank, size, config.name, config.global_ranks);
    std::shared_ptr<Communicator> communicator;
    throw_c10d(Communicator::create(*node, config, *bootstrap, &communicator));
    return c10::make_intrusive<C10dBackend>(std::move(communicator), std::move(bootstrap), std::move(store),
                                            std::move(options));
}

C10dBackend::C10dBackend(std::shared_ptr<Communicator> communicator, std::shared_ptr<StoreBootstrap> bootstrap,
                         StorePtr store, OptionsPtr options)
    : Backend(communicator->rank(), communicator->world_size()), bootstrap_(std::move(bootstrap)),
      communicator_(std::move(communicator)), store_(std::move(store)), options_(std::move(options)),
      owner_(static_cast<int>(getpid())) {
    log_group(*communicator_);
}

C10dBackend::~C10dBackend() {
    if (is_forked_child())
        return; // the communicator knows by itself that it must not touch anything there
    // A group that was not destroyed tells its peers that it is gone. Works that are under way outlive it, though: they
    // hold the communicator, which goes with the last of them.
    if (!ledger_->idle())
        return;
    const ReleaseGil no_gil;
    if (sparse_)
        (void)sparse_->close(0);
    (void)communicator_->close(0);
}

bool C10dBackend::is_forked_child() const { return static_cast<int>(getpid()) != owner_; }

c10::intrusive_ptr<c10d::Backend::Options> C10dBackend::getBackendOptions() {
    // A copy: ProcessGroup::splitGroup writes the new group's name and timeout into what it gets.
    return c10::make_intrusive<C10dOptions>(*options_);
}

void C10dBackend::setTimeout(std::chrono::milliseconds timeout) {
    COLLECTIVES_CHECK_VALUE(timeout.count() > 0, "set_timeout: timeout is ", timeout.count(), " ms, must be positive");
    options_->timeout = timeout;
    communicator_->set_timeout(std::chrono::nanoseconds(timeout).count());
}

void C10dBackend::setGroupUid(const std::string& uid) {
    Backend::setGroupUid(uid);
    if (options_->group_name.empty())
        options_->group_name = uid;
}

uint64_t C10dBackend::global_rank(int rank) const {
    const auto& global = options_->global_ranks_in_group;
    const auto index = static_cast<size_t>(rank);
    return index < global.size() ? global[index] : static_cast<uint64_t>(rank);
}

// ---- running --------------------------------------------------------------------------------------------------------

WorkPtr C10dBackend::run_now(const Call& call, std::chrono::milliseconds timeout) {
    const ReleaseGil no_gil;
    throw_c10d(communicator_->run(call, timeout_ns_of(timeout)));
    return nullptr;
}

c10::intrusive_ptr<RequestWork> C10dBackend::new_work(Completion completion) {
    return c10::make_intrusive<RequestWork>(rank_, std::move(completion), ledger_);
}

namespace {

/// Arguments that no rank could use are an error of this call, not of a later wait.
void throw_if_refused(const RequestPtr& request) {
    if (!request->done())
        return;
    const Status status = request->status();
    if (status.code() == Code::invalid_argument || status.code() == Code::unsupported || status.code() == Code::closed)
        throw_c10d(status);
}

} // namespace

WorkPtr C10dBackend::start(Operation& operation, std::chrono::milliseconds timeout) {
    RequestPtr request = communicator_->start(operation.call(), timeout_ns_of(timeout));
    throw_if_refused(request);
    auto work = new_work(std::move(operation.completion));
    work->attach(std::move(request));
    return work;
}

void C10dBackend::check_active() const {
    TORCH_CHECK(!suspended_.load(std::memory_order_acquire), "collectives: process group ", options_->group_name,
                " is suspended; call resume() on all its ranks first");
}

void C10dBackend::update_special() {
    const std::lock_guard lock(block_mutex_);
    special_.store(block_ != nullptr || suspended_ || ledger_->has_hook(), std::memory_order_release);
}

WorkPtr C10dBackend::launch(Operation&& operation, std::chrono::milliseconds timeout, bool async) {
    if (is_special()) {
        check_active();
        if (Block* block = open_block()) {
            block->timeout = std::max(block->timeout, timeout);
            throw_c10d(communicator_->validate(operation.call()));
            auto work = new_work(std::move(operation.completion));
            block->deferred.push_back(std::move(operation));
            block->deferred_works.push_back(work);
            block->works.push_back(work);
            return async ? WorkPtr(work) : nullptr;
        }
        if (!async) { // a hook wants to hear of it: through a work
            start(operation, timeout)->wait(kNoTimeout);
            return nullptr;
        }
    }
    if (async)
        return start(operation, timeout);
    const ProfiledRange range(operation.completion);
    run_now(operation.call(), timeout);
    operation.completion.finish();
    return nullptr;
}

namespace {

/// The outputs of operations that end together: each must have its own memory.
void check_outputs_apart(const std::vector<Operation>& operations) {
    std::vector<at::Tensor> outputs;
    std::vector<size_t> owners;
    for (size_t i = 0; i < operations.size(); ++i)
        for (const at::Tensor& output : operations[i].completion.outputs) {
            outputs.push_back(output);
            owners.push_back(i);
        }
    const auto overlap = find_overlap(outputs);
    if (!overlap)
        return;
    const size_t a = owners[overlap->first], b = owners[overlap->second];
    const std::string which = a == b ? "two outputs of entry " + std::to_string(a)
                                     : "outputs of entries " + std::to_string(a) + " and " + std::to_string(b);
    COLLECTIVES_CHECK_VALUE(false, operations.front().name(), ": ", which,
                            " of the lists share memory, so that they cannot both take a result; give each its own");
}

} // namespace

WorkPtr C10dBackend::launch_batch(std::vector<Operation> operations, std::chrono::milliseconds timeout, bool async) {
    COLLECTIVES_CHECK_VALUE(!operations.empty(), "coalesced operation: the list of tensors is empty");
    if (operations.size() == 1)
        return launch(std::move(operations.front()), timeout, async);
    if (is_special() && open_block() != nullptr) {
        for (Operation& operation : operations) launch(std::move(operation), timeout, async);
        return nullptr;
    }
    check_outputs_apart(operations);
    std::vector<Call> calls;
    Completion all;
    all.type = operations.front().completion.type;
    all.title = operations.front().completion.title;
    for (Operation& operation : operations) {
        calls.push_back(operation.call());
        all.add(std::move(operation.completion));
    }
    RequestPtr request = communicator_->start_coalesced(calls, timeout_ns_of(timeout));
    throw_if_refused(request);
    auto work = new_work(std::move(all));
    work->attach(std::move(request));
    if (async)
        return work;
    work->wait(kNoTimeout);
    return nullptr;
}

} // namespace collectives
