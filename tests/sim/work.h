// Work: the memory of one operation of the simulation, what it must hold afterwards, and the call that fills it. Element i
// of rank q's input is a small number drawn from (salt, q, i), so every rank knows every result. For the simulation only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "script.h"
#include "transport/node.h"

namespace collectives::sim {

/// Memory of an operation: the rank's own, or shared (Node::allocate).
class Memory {
  public:
    Memory(Node& node, int64_t bytes, bool mapped);
    ~Memory();
    Memory(const Memory&) = delete;
    uint8_t* data() { return data_; }
    bool mapped() const { return mapped_; }

  private:
    Node& node_;
    bool mapped_;
    std::vector<uint8_t> own_;
    uint8_t* data_;
};

struct Work {
    Call call; // counts point into the two below
    std::vector<int64_t> in_counts, out_counts;
    std::shared_ptr<Memory> in, out;
    std::function<std::string()> check; // what is wrong with the result, or ""
};

/// The part of rank `rank` (of `n`) in a collective.
std::unique_ptr<Work> make_work(const Action& action, uint64_t salt, int rank, int n, Node& node);

/// Content of message `which` of an action from rank `from`, and what is wrong with one that arrived.
void fill_message(uint64_t salt, int from, int which, uint8_t* data, int64_t bytes);
std::string check_message(uint64_t salt, int from, int which, const uint8_t* data, int64_t bytes);

} // namespace collectives::sim
