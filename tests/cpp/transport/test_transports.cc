// The table of transports: its rows, what each promises, and the errors of asking for something else. The suite at the
// end runs over every row that works between threads: a new one is covered without a change here.
#include <doctest/doctest.h>

#include <cstring>
#include <set>

#include "engine/rank_threads.h"

using namespace collectives;
using collectives::testing::RankOptions;
using collectives::testing::run_ranks;

namespace {

std::string error_of(const Status& status) { return std::string(code_name(status.code())) + ": " + status.message(); }

Status make(const std::string& transport, const NodeConfig& config) {
    std::unique_ptr<Node> node;
    return create_node(transport, config, &node);
}

NodeConfig small() {
    NodeConfig config;
    config.heap_bytes = 1 << 20;
    return config;
}

NodeConfig with(const FaultPlan& plan) {
    NodeConfig config = small();
    config.faults = std::make_shared<const FaultPlan>(plan);
    return config;
}

} // namespace

TEST_CASE("every row has a name of its own, reaches somebody, and is found") {
    std::set<std::string> names;
    for (int i = 0; i < kTransportCount; ++i) {
        const Transport& row = kTransports[i];
        CAPTURE(row.name);
        CHECK(names.insert(row.name).second);
        CHECK(find_transport(row.name) == &row);
        CHECK((row.between_processes || row.between_threads));
        CHECK((row.create == nullptr) == row.wraps);
        CHECK(std::strlen(row.what) > 10);
    }
    CHECK(find_transport("carrier pigeon") == nullptr);
}

TEST_CASE("a node of a row that is not there, or of the wrong plan, is refused with the reason") {
    CHECK(error_of(make("carrier pigeon", small())) ==
          "invalid argument: no transport is named 'carrier pigeon': there are shm, tcp, inproc and faulty");
    CHECK(error_of(make("faulty", small())) ==
          "invalid argument: transport faulty needs a fault plan (NodeConfig::faults)");
    CHECK(error_of(make("inproc", with({}))) ==
          "invalid argument: transport inproc takes no fault plan: ask for transport faulty over it");
    FaultPlan plan;
    plan.over = "faulty";
    CHECK(error_of(make("faulty", with(plan))) ==
          "invalid argument: a fault plan cannot be over transport faulty, which wraps another itself");
    plan.over = "string";
    CHECK(error_of(make("faulty", with(plan))).find("no transport is named 'string'") != std::string::npos);
    plan.over = "inproc";
    plan.reorder_probability = 1.5;
    CHECK(error_of(make("faulty", with(plan))).find("a probability must lie between 0 and 1") != std::string::npos);
    plan.reorder_probability = 1;
    plan.max_delay_ns = -1;
    CHECK(error_of(make("faulty", with(plan))).find("max_delay_ns is -1") != std::string::npos);
}

TEST_CASE("a group is made only over a transport that is allowed") {
    CHECK(check_transports({}, "shm").ok());
    CHECK(check_transports({"inproc", "shm"}, "shm").ok());
    CHECK(
        error_of(check_transports({"inproc"}, "shm")) ==
        "invalid argument: this process reaches its peers by transport shm, which is not among those allowed (inproc)");
    CHECK(check_transports({"shm"}, "faulty").code() == Code::invalid_argument); // nobody asked for faults
    CHECK(error_of(check_transports({"shm", "pigeon"}, "shm")).find("no transport is named 'pigeon'") !=
          std::string::npos);
}

TEST_CASE("every row between threads moves collectives and messages") {
    for (int i = 0; i < kTransportCount; ++i) {
        if (!kTransports[i].between_threads)
            continue;
        for (const char* over : {"inproc", "shm"}) {
            RankOptions options;
            options.transport = kTransports[i].name;
            options.faults.over = over;
            options.faults.delay_probability = 0.3;
            options.faults.max_delay_ns = 100'000;
            options.faults.reorder_probability = 0.5;
            CAPTURE(options.transport);
            CAPTURE(over);
            std::atomic<int> right{0};
            run_ranks(
                3,
                [&](int r, Communicator& communicator, Node&) {
                    std::vector<int32_t> values(40'000, r + 1), received(20'000);
                    Call call;
                    call.kind = Collective::all_reduce;
                    call.dtype = DType::i32;
                    call.in = call.out = Blocks{values.data(), nullptr, nullptr, int64_t(values.size())};
                    bool good = communicator.run(call).ok();
                    for (int32_t value : values) good = good && value == 6;
                    const int64_t bytes = int64_t(received.size() * sizeof received[0]);
                    auto send = communicator.start_send(values.data(), bytes, (r + 1) % 3, 7);
                    auto recv = communicator.start_recv(received.data(), bytes, kAnySource, 7);
                    good = good && send->wait().ok() && recv->wait().ok() && recv->source() == (r + 2) % 3;
                    for (int32_t value : received) good = good && value == 6;
                    right += good && communicator.run(Call{}).ok();
                },
                options);
            CHECK(right == 3);
            if (!kTransports[i].wraps)
                break; // there is nothing for a plan to be over
        }
    }
}
