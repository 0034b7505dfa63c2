// Drawing a script.
#include "script.h"

#include <algorithm>

namespace collectives::sim {
namespace {

class Draw {
  public:
    explicit Draw(uint64_t seed) : seed_(seed) {}
    uint64_t bits() { return random_bits(seed_, 1000, count_++); }
    int64_t below(int64_t n) { return int64_t(bits() % uint64_t(n)); }
    bool chance(int percent) { return below(100) < percent; }
    template <class T> T one_of(std::initializer_list<T> list) { return list.begin()[below(int64_t(list.size()))]; }

  private:
    uint64_t seed_, count_ = 0;
};

void draw_faults(Draw& draw, Script& script) {
    FaultPlan& plan = script.faults;
    plan.delay_probability = draw.one_of({0.0, 0.02, 0.3});
    plan.max_delay_ns = draw.one_of<int64_t>({20'000, 200'000, 2'000'000});
    plan.reorder_probability = draw.one_of({0.0, 0.5, 1.0});
    if (!draw.chance(50))
        return;
    script.victim = int(draw.below(script.world_size));
    script.drop_after = draw.below(draw.one_of<int64_t>({20, 200}));
    script.silent = draw.chance(15);
}

void draw_collective(Draw& draw, int n, Action& a) {
    a.kind = Collective(draw.below(kCollectiveCount));
    a.dtype = draw.one_of({DType::i32, DType::i64, DType::f32, DType::f64, DType::u8});
    a.op = draw.one_of({ReduceOp::sum, ReduceOp::min, ReduceOp::max});
    a.count = draw.chance(80) ? draw.below(300) : draw.below(20'000);
    a.root = int(draw.below(n));
    a.uneven = draw.chance(50);
    a.in_place = draw.chance(30);
    a.mapped = draw.chance(40);
}

void draw_message(Draw& draw, int n, Action& a) {
    a.from = int(draw.below(n));
    a.to = int(draw.below(n));
    a.any_source = draw.chance(30);
    a.bytes = draw.chance(70) ? draw.below(3000) : draw.below(200'000);
}

/// Makes the groups of a split; those of one member are groups too.
void draw_split(Draw& draw, const std::vector<int>& members, Script& script, Action& a) {
    int colors = int(1 + draw.below(3));
    a.first_new = int(script.groups.size());
    for (size_t i = 0; i < members.size(); ++i) {
        a.colors.push_back(draw.chance(10) ? -1 : int(draw.below(colors)));
        a.keys.push_back(int(draw.below(4)));
    }
    for (int color = 0; color < colors; ++color) {
        std::vector<int> ranks;
        for (int i = 0; i < int(members.size()); ++i)
            if (a.colors[size_t(i)] == color)
                ranks.push_back(i);
        std::stable_sort(ranks.begin(), ranks.end(),
                         [&](int p, int q) { return a.keys[size_t(p)] < a.keys[size_t(q)]; });
        for (int& rank : ranks) rank = members[size_t(rank)];
        script.groups.push_back(std::move(ranks));
    }
}

Act draw_act(Draw& draw) {
    int64_t percent = draw.below(100);
    constexpr struct {
        int until;
        Act act;
    } kTable[] = {{50, Act::collective}, {56, Act::coalesced}, {70, Act::message}, {77, Act::burst},
                  {82, Act::gather_any}, {90, Act::wait},      {95, Act::split},   {99, Act::close}};
    for (auto [until, act] : kTable)
        if (percent < until)
            return act;
    return Act::abort;
}

} // namespace

Script make_script(uint64_t seed) {
    Draw draw(seed);
    Script script;
    script.seed = seed;
    script.world_size = int(2 + draw.below(5));
    script.faults.seed = seed;
    draw_faults(draw, script);
    script.staging_bytes = draw.one_of<int64_t>({0, 1024, 16 << 10});
    script.piece_bytes = draw.one_of<int64_t>({0, 4096});
    script.mapped_from_bytes = draw.one_of<int64_t>({0, 1, 1024});
    script.pull_from_bytes = draw.one_of<int64_t>({-1, 1, 4096});
    script.spin_ns = draw.one_of<int64_t>({0, 2000, 20'000});
    script.groups.emplace_back();
    for (int r = 0; r < script.world_size; ++r) script.groups[0].push_back(r);
    std::vector<int> open{0};
    const int64_t length = 10 + draw.below(50);
    for (int64_t i = 0; i < length; ++i) {
        Action a;
        a.act = draw_act(draw);
        size_t which = size_t(draw.below(int64_t(open.size())));
        a.group = open[which];
        if (a.group == 0 && (a.act == Act::close || a.act == Act::abort))
            continue;
        const std::vector<int> members = script.groups[size_t(a.group)];
        a.salt = draw.bits();
        a.async = draw.chance(50);
        a.parts = int(2 + draw.below(8));
        a.tag = uint32_t(16 * i);
        draw_collective(draw, int(members.size()), a);
        draw_message(draw, int(members.size()), a);
        if (a.act == Act::split) {
            draw_split(draw, members, script, a);
            for (int g = a.first_new; g < int(script.groups.size()); ++g)
                if (!script.groups[size_t(g)].empty())
                    open.push_back(g);
        }
        script.aborted.resize(script.groups.size());
        if (a.act == Act::abort)
            script.aborted[size_t(a.group)] = true;
        if (a.act == Act::close || a.act == Act::abort)
            open.erase(open.begin() + int64_t(which));
        script.actions.push_back(std::move(a));
    }
    script.aborted.resize(script.groups.size());
    return script;
}

std::string text_of(const Action& a) {
    std::string group = " in group " + std::to_string(a.group) + (a.async ? ", async" : "");
    switch (a.act) {
    case Act::collective:
    case Act::coalesced:
        return std::string(a.act == Act::coalesced ? std::to_string(a.parts) + " coalesced all_reduce"
                                                   : collective_name(a.kind)) +
               " of " + info(a.dtype).name + "[" + std::to_string(a.count) + "] root " + std::to_string(a.root) +
               (a.uneven ? " uneven" : "") + (a.in_place ? " in place" : "") + (a.mapped ? " mapped" : "") + group;
    case Act::message:
        return "message of " + std::to_string(a.bytes) + " bytes from " + std::to_string(a.from) + " to " +
               std::to_string(a.to) + (a.any_source ? " (from any)" : "") + group;
    case Act::burst:
        return "burst of " + std::to_string(a.parts) + " messages from " + std::to_string(a.from) + " to " +
               std::to_string(a.to) + group;
    case Act::gather_any: return "messages from any to " + std::to_string(a.to) + group;
    case Act::wait: return "wait";
    case Act::split: return "split of group " + std::to_string(a.group);
    case Act::close: return "close of group " + std::to_string(a.group);
    case Act::abort: return "abort of group " + std::to_string(a.group) + " by " + std::to_string(a.from);
    }
    return "?";
}

std::string text_of(const Script& script) {
    std::string text = "seed " + std::to_string(script.seed) + ": " + std::to_string(script.world_size) + " ranks, " +
                       std::to_string(script.actions.size()) + " actions";
    if (script.victim >= 0)
        text += ", rank " + std::to_string(script.victim) + " dies after " + std::to_string(script.drop_after) +
                " publications" + (script.silent ? ", silently" : "");
    return text;
}

} // namespace collectives::sim
