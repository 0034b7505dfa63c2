// Many messages outstanding at once on one channel: what each costs must not grow with how many there are. Processor time
// of the posting thread, compared between two counts, so that neither the machine's speed nor its load matters.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <vector>

#include "engine/rank_threads.h"

using namespace collectives;
using namespace collectives::testing;

namespace {

constexpr uint32_t kTag = 7;

int64_t thread_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return int64_t(now.tv_sec) * kSecond + now.tv_nsec;
}

void meet(Communicator& communicator) {
    Call barrier;
    barrier.kind = Collective::barrier;
    CHECK(communicator.run(barrier).ok());
}

/// Rank 1 sends to rank 0; rank `first` posts all its messages before the other one begins. Returns what posting and
/// waiting cost this rank in processor time, nanoseconds a message.
double cost_ns(Communicator& communicator, int rank, int first, int count, int64_t bytes) {
    const size_t words = size_t(bytes) / sizeof(int64_t);
    std::vector<int64_t> data(size_t(count) * words, rank == 0 ? -1 : 0);
    for (int i = 0; rank == 1 && i < count; ++i) data[size_t(i) * words] = i;
    std::vector<RequestPtr> requests;
    requests.reserve(size_t(count));
    meet(communicator);
    if (rank != first)
        meet(communicator);
    const int64_t start = thread_ns();
    for (int i = 0; i < count; ++i) {
        int64_t* at = &data[size_t(i) * words];
        requests.push_back(rank == 0 ? communicator.start_recv(at, bytes, 1, kTag)
                                     : communicator.start_send(at, bytes, 0, kTag));
    }
    int64_t spent = thread_ns() - start;
    if (rank == first)
        meet(communicator);
    const int64_t waiting = thread_ns();
    for (const RequestPtr& request : requests) CHECK(request->wait().ok());
    spent += thread_ns() - waiting;
    for (int i = 0; rank == 0 && i < count; ++i) REQUIRE(data[size_t(i) * words] == i); // in the order of posting
    return double(spent) / count;
}

} // namespace

TEST_CASE("a message costs the same, however many are outstanding") {
    constexpr int kFew = 2000, kMany = 20000;
    for (int64_t bytes : {8, 4104}) // a small one, buffered; one that is announced first
        for (int first : {0, 1}) {
            CAPTURE(bytes);
            CAPTURE(first);
            double few[2] = {1e18, 1e18}, many[2] = {1e18, 1e18}; // by rank; the best of three
            run_ranks(2, [&](int rank, Communicator& communicator, Node&) {
                for (int round = 0; round < 3; ++round) {
                    few[rank] = std::min(few[rank], cost_ns(communicator, rank, first, kFew, bytes));
                    many[rank] = std::min(many[rank], cost_ns(communicator, rank, first, kMany, bytes));
                }
            });
            MESSAGE(bytes, " bytes, rank ", first, " first: ", few[0], " / ", few[1], " ns for ", kFew, ", ", many[0],
                    " / ", many[1], " ns for ", kMany);
            for (int rank : {0, 1}) CHECK(many[rank] < 4 * few[rank]); // linear searches make it ten
        }
}
