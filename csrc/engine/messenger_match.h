// Intrusive queues of the messenger: nothing is allocated when an operation waits in one. `Queue` is plain first-in,
// first-out; `KeyedQueue` is first-in, first-out among the members with one key, and finds the first of a key quickly.
// Private to the messenger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace collectives::messages {

template <class Node> struct Hook {
    Node* prev = nullptr;
    Node* next = nullptr;
    uint64_t key = 0;
};

template <class Node, Hook<Node> Node::* hook> class Queue {
  public:
    bool empty() const { return head_ == nullptr; }
    Node* front() const { return head_; }
    static Node* next(const Node* node) { return (node->*hook).next; }

    void push_back(Node* node) {
        (node->*hook).prev = tail_;
        (node->*hook).next = nullptr;
        (tail_ ? (tail_->*hook).next : head_) = node;
        tail_ = node;
    }

    void erase(Node* node) {
        Node* const prev = (node->*hook).prev;
        Node* const next = (node->*hook).next;
        (prev ? (prev->*hook).next : head_) = next;
        (next ? (next->*hook).prev : tail_) = prev;
    }

    Node* pop_front() {
        Node* node = head_;
        erase(node);
        return node;
    }

  private:
    Node* head_ = nullptr;
    Node* tail_ = nullptr;
};

template <class Node, Hook<Node> Node::* hook> class KeyedQueue {
    using Bucket = Queue<Node, hook>;

  public:
    size_t size() const { return size_; }

    void push_back(Node* node, uint64_t key) {
        if (size_ >= 2 * buckets_.size())
            grow();
        (node->*hook).key = key;
        buckets_[index(key)].push_back(node);
        ++size_;
    }

    Node* first(uint64_t key) const {
        return first_of(key, [](const Node&) { return true; });
    }

    /// The first with this key for which is_meant(node) holds.
    template <class IsMeant> Node* first_of(uint64_t key, IsMeant is_meant) const {
        if (size_ == 0)
            return nullptr;
        Node* node = buckets_[index(key)].front();
        while (node != nullptr && ((node->*hook).key != key || !is_meant(*node))) node = Bucket::next(node);
        return node;
    }

    void erase(Node* node) {
        buckets_[index((node->*hook).key)].erase(node);
        --size_;
    }

    /// Calls visit(node) for all; it may erase the node that it is given, and no other.
    template <class Visit> void for_each(Visit visit) {
        for (size_t i = 0; i < buckets_.size(); ++i) {
            for (Node* node = buckets_[i].front(); node != nullptr;) {
                Node* const next = Bucket::next(node);
                visit(node);
                node = next;
            }
        }
    }

  private:
    size_t index(uint64_t key) const { return size_t((key * 0x9E3779B97F4A7C15ull) >> 32) & (buckets_.size() - 1); }

    // Members with one key share a bucket, so moving bucket by bucket keeps their order.
    void grow() {
        std::vector<Bucket> old(buckets_.empty() ? 8 : 2 * buckets_.size());
        old.swap(buckets_);
        for (Bucket& bucket : old) {
            while (!bucket.empty()) {
                Node* node = bucket.pop_front();
                buckets_[index((node->*hook).key)].push_back(node);
            }
        }
    }

    std::vector<Bucket> buckets_; // a power of two
    size_t size_ = 0;
};

} // namespace collectives::messages
