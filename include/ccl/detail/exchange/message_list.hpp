#pragma once

#include <ccl/detail/base/spare.hpp>
#include <ccl/detail/wire/work.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Messages of one direction, peer by peer, in the order in which they travel. They lie in memory
/// that an earlier list of the thread has left.
class MessageList {
 public:
  explicit MessageList(int ranks)
      : messages_{Spares<Message>::take()}, begin_{Spares<int>::take()} {
    messages_.clear();
    begin_.resize(std::size_t(ranks) + 1);
    begin_[0] = 0;
  }
  ~MessageList() {
    Spares<Message>::leave(std::move(messages_));
    Spares<int>::leave(std::move(begin_));
  }
  MessageList(const MessageList&) = default;
  MessageList(MessageList&&) noexcept = default;
  MessageList& operator=(const MessageList&) = default;
  MessageList& operator=(MessageList&&) noexcept = default;

  /// Adds the last message of a peer. Peers in ascending order cost least: any other order moves
  /// the messages of later peers.
  void add(int peer, const Message& message) {
    if (peer < last_) return insert(peer, message);
    begin_until(peer);
    messages_.push_back(message);
  }
  /// Number of ranks.
  std::size_t size() const { return begin_.size() - 1; }
  std::span<const Message> operator[](std::size_t peer) const {
    const std::size_t first = begin(int(peer));
    return {messages_.data() + first, begin(int(peer) + 1) - first};
  }
  /// All messages, peer by peer.
  std::span<const Message> all() const { return messages_; }
  /// Returns the list as lanes read it, until it changes. `cursor` is their scratch.
  Messages view(Cursor* cursor) {
    begin_until(int(size()));
    return {messages_.data(), begin_.data(), cursor};
  }

 private:
  std::size_t begin(int peer) const {
    return peer <= last_ ? std::size_t(begin_[std::size_t(peer)]) : messages_.size();
  }
  void begin_until(int peer) {
    while (last_ < peer) begin_[std::size_t(++last_)] = int(messages_.size());
  }
  void insert(int peer, const Message& message) {
    messages_.insert(messages_.begin() + std::ptrdiff_t(begin(peer + 1)), message);
    for (int p = peer + 1; p <= last_; ++p) ++begin_[std::size_t(p)];
  }

  std::vector<Message> messages_;
  std::vector<int> begin_;  // of each peer's messages, up to `last_`; later peers have none
  int last_ = 0;
};

/// Messages of one exchange.
struct MessageTable {
  explicit MessageTable(int ranks) : sends{ranks}, recvs{ranks} {}
  MessageTable(MessageList sent, MessageList received)
      : sends{std::move(sent)}, recvs{std::move(received)} {}

  MessageList sends, recvs;
  void send(int peer, const void* data, Index bytes) {
    sends.add(peer, {static_cast<char*>(const_cast<void*>(data)), bytes});
  }
  void recv(int peer, void* data, Index bytes) {
    recvs.add(peer, {static_cast<char*>(data), bytes});
  }
};

}  // namespace ccl::detail
