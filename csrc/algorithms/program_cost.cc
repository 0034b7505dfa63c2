// Running programs by the clock. See program_cost.h.
#include "algorithms/program_cost.h"

#include <algorithm>
#include <queue>

#include "base/check.h"

namespace collectives {
namespace {

enum class EventKind : uint8_t { ready, coming, arrived, ended };

struct Event {
    double at_ns;
    uint64_t order; // of equal times, the one that was thought of first
    EventKind kind;
    int rank, action;

    bool operator>(const Event& other) const {
        return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
    }
};

struct RankClock {
    std::vector<int32_t> before; // what each action still waits for
    std::vector<bool> here;      // receives: the frame has arrived,
    std::vector<bool> open;      // and: may be taken
    std::vector<int64_t> sent;   // bytes, by peer
    double busy_ns = 0;          // until then it works,
    double out_ns = 0;           // its way out is occupied,
    double in_ns = 0;            // and its way in
};

class Clockwork {
  public:
    Clockwork(const std::vector<Program>& programs, int64_t element_bytes, const LinkCosts& costs)
        : programs_(programs), element_bytes_(element_bytes), costs_(costs), ranks_(programs.size()) {}

    double run() {
        for (size_t r = 0; r < ranks_.size(); ++r) begin(int(r));
        double last = 0;
        int64_t ended = 0, all = 0;
        for (const Program& p : programs_) all += p.size();
        while (!events_.empty()) {
            Event e = events_.top();
            events_.pop();
            last = std::max(last, e.at_ns);
            ended += e.kind == EventKind::ended;
            handle(e);
        }
        COLLECTIVES_CHECK(ended == all); // else it would hang on real links, too
        return last + costs_.call_ns;
    }

  private:
    void begin(int r) {
        const Program& p = programs_[size_t(r)];
        RankClock& rank = ranks_[size_t(r)];
        rank.here.assign(size_t(p.size()), false);
        rank.open.assign(size_t(p.size()), false);
        rank.sent.assign(programs_.size(), 0);
        for (int i = 0; i < p.size(); ++i) {
            rank.before.push_back(p.action(i).n_before);
            if (p.action(i).n_before == 0)
                add(0, EventKind::ready, r, i);
        }
    }

    void add(double at_ns, EventKind kind, int rank, int action) {
        events_.push({at_ns, order_++, kind, rank, action});
    }

    /// The rank's processor does something of this length, not before `at_ns`; when it is done.
    double work(RankClock& rank, double at_ns, double length_ns) {
        rank.busy_ns = std::max(at_ns, rank.busy_ns) + length_ns;
        return rank.busy_ns;
    }

    void handle(const Event& e) {
        RankClock& rank = ranks_[size_t(e.rank)];
        const Program& program = programs_[size_t(e.rank)];
        const Action& action = program.action(e.action);
        switch (e.kind) {
        case EventKind::ended:
            for (int i = 0; i < action.n_after; ++i) {
                int next = program.successors(action)[i];
                if (--rank.before[size_t(next)] == 0)
                    add(e.at_ns, EventKind::ready, e.rank, next);
            }
            return;
        case EventKind::coming: // its first byte is at the way in
            rank.in_ns = std::max(e.at_ns, rank.in_ns) + costs_.port_of(action.count * element_bytes_);
            return add(rank.in_ns, EventKind::arrived, e.rank, e.action);
        case EventKind::arrived:
            rank.here[size_t(e.action)] = true;
            if (rank.open[size_t(e.action)])
                add(work(rank, e.at_ns, costs_.frame_ns), EventKind::ended, e.rank, e.action);
            return;
        case EventKind::ready: start(e, rank, action); return;
        }
    }

    void start(const Event& e, RankClock& rank, const Action& action) {
        const int64_t bytes = action.count * element_bytes_;
        double length = 0;
        switch (action.kind) {
        case ActionKind::send: return send(e, rank, action, bytes);
        case ActionKind::receive:
            rank.open[size_t(e.action)] = true;
            if (!rank.here[size_t(e.action)])
                return; // until it arrives
            length = costs_.frame_ns;
            break;
        case ActionKind::reduce: length = double(bytes) * action.n_srcs * costs_.reduce_byte_ns; break;
        case ActionKind::copy: length = double(bytes) * costs_.copy_byte_ns; break;
        }
        add(work(rank, e.at_ns, length), EventKind::ended, e.rank, e.action);
    }

    void send(const Event& e, RankClock& rank, const Action& action, int64_t bytes) {
        int64_t& sent = rank.sent[size_t(action.peer)];
        const double told = costs_.latency_ns + 2 * costs_.frame_ns; // the peer says that it has begun
        if (sent + bytes > costs_.eager_bytes && e.at_ns < told)
            return add(told, EventKind::ready, e.rank, e.action);
        sent += bytes;
        double leaves = std::max(work(rank, e.at_ns, costs_.frame_ns), rank.out_ns);
        rank.out_ns = leaves + costs_.port_of(bytes);
        int receive = programs_[size_t(action.peer)].receive_at(e.rank, action.slot);
        COLLECTIVES_CHECK(receive >= 0);
        add(leaves + costs_.latency_ns, EventKind::coming, action.peer, receive);
        add(rank.out_ns, EventKind::ended, e.rank, e.action);
    }

    const std::vector<Program>& programs_;
    const int64_t element_bytes_;
    const LinkCosts& costs_;
    std::vector<RankClock> ranks_;
    std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
    uint64_t order_ = 0;
};

} // namespace

double LinkCosts::port_of(int64_t bytes) const {
    int i = 1;
    while (i < kPoints - 1 && bytes > kPointBytes[size_t(i)]) ++i;
    const double from = double(kPointBytes[size_t(i - 1)]), to = double(kPointBytes[size_t(i)]);
    const double low = port_ns[size_t(i - 1)], high = port_ns[size_t(i)];
    return std::max(0.0, low + (high - low) * (double(bytes) - from) / (to - from));
}

double predict_ns(const std::vector<Program>& programs, int64_t element_bytes, const LinkCosts& costs) {
    return Clockwork(programs, element_bytes, costs).run();
}

std::vector<Program> programs_of_all(const WireAlgorithm& row, const Shape& shape) {
    static uint8_t in, out; // two places that are not the same; nothing is read or written there
    std::vector<Program> programs;
    Call call = *shape.call;
    call.in = Blocks{&in, nullptr, nullptr, shape.count};
    call.out = Blocks{&out, nullptr, nullptr, shape.count};
    Shape each = shape;
    each.call = &call;
    for (int r = 0; r < shape.world_size; ++r) {
        each.rank = r;
        programs.emplace_back(shape.world_size);
        row.build(each, programs.back());
        programs.back().finish();
    }
    return programs;
}

} // namespace collectives
