// What a call's arguments are refused for on one rank: lists of blocks that share memory. The rest is tried from Python.
#include <doctest/doctest.h>

#include <vector>

#include "engine/rank_threads.h"

using namespace collectives;
using namespace collectives::testing;

TEST_CASE("output blocks that overlap each other are refused") {
    run_ranks(3, [](int rank, Communicator& communicator, Node&) {
        std::vector<float> memory(100);
        float in[12] = {};
        auto refused = [&](Collective kind, std::vector<int> places, std::vector<int64_t> counts) {
            std::vector<void*> out, ins;
            for (size_t i = 0; i < 3; ++i) {
                out.push_back(memory.data() + places[i]);
                ins.push_back(in + 4 * i);
            }
            Call call;
            call.kind = kind;
            call.dtype = DType::f32;
            call.root = rank;
            call.out.ptrs = out.data();
            call.out.counts = counts.data();
            if (kind == Collective::all_to_all) {
                call.in.ptrs = ins.data();
                call.in.counts = counts.data();
            } else {
                call.in.base = in;
                call.in.count = counts[size_t(rank)];
            }
            return communicator.validate(call).message();
        };
        for (Collective kind : {Collective::all_gather, Collective::gather, Collective::all_to_all}) {
            CAPTURE(int(kind));
            CHECK(refused(kind, {0, 4, 8}, {4, 4, 4}) == "");
            CHECK(refused(kind, {8, 0, 4}, {4, 4, 4}) == "");
            CHECK(refused(kind, {8, 0, 3}, {4, 4, 4}).find("blocks 1 and 2 of out overlap") != std::string::npos);
            CHECK(refused(kind, {8, 0, 8}, {4, 4, 4}).find("blocks 0 and 2 of out overlap") != std::string::npos);
        }
        CHECK(refused(Collective::all_gather, {0, 9, 0}, {0, 4, 8}) == ""); // an empty block lies nowhere
        CHECK(refused(Collective::all_gather, {0, 4, 2}, {12, 4, 4}).find("of out overlap") != std::string::npos);
    });
}
