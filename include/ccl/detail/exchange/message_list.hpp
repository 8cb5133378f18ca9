#pragma once

#include <ccl/detail/base/spare.hpp>
#include <ccl/detail/wire/work.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Messages of one direction, peer by peer, in the order in which they travel. Few messages of few
/// ranks lie in the list itself, others in memory that an earlier list of the thread has left.
class MessageList {
 public:
  explicit MessageList(int ranks) : ranks_{ranks} {
    few_begin_.data()[0] = 0;
    if (ranks <= few) return;
    long_begin_ = Spares<int>::take();
    long_begin_.resize(std::size_t(ranks) + 1);
    long_begin_[0] = 0;
  }
  ~MessageList() {
    if (long_begin_.capacity() != 0) Spares<int>::leave(std::move(long_begin_));
    if (long_.capacity() != 0) Spares<Message>::leave(std::move(long_));
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
    if (count_ < few && long_.empty()) {
      few_.data()[count_] = message;
    } else {
      spill();
      long_.push_back(message);
    }
    ++count_;
  }
  /// Number of ranks.
  std::size_t size() const { return std::size_t(ranks_); }
  std::span<const Message> operator[](std::size_t peer) const {
    const std::size_t first = begin(int(peer));
    return {messages() + first, begin(int(peer) + 1) - first};
  }
  /// All messages, peer by peer.
  std::span<const Message> all() const { return {messages(), std::size_t(count_)}; }
  /// Returns the list as lanes read it, until it changes or moves. `cursor` is their scratch.
  Messages view(Cursor* cursor) {
    begin_until(ranks_);
    return {messages(), begins(), cursor};
  }

 private:
  static constexpr int few = 8;

  const Message* messages() const { return long_.empty() ? few_.data() : long_.data(); }
  const int* begins() const { return ranks_ <= few ? few_begin_.data() : long_begin_.data(); }
  int& begin_of(int peer) {
    return ranks_ <= few ? few_begin_.data()[peer] : long_begin_[std::size_t(peer)];
  }
  std::size_t begin(int peer) const { return std::size_t(peer <= last_ ? begins()[peer] : count_); }
  void begin_until(int peer) {
    while (last_ < peer) begin_of(++last_) = count_;
  }
  void insert(int peer, const Message& message) {
    spill();
    long_.insert(long_.begin() + std::ptrdiff_t(begin(peer + 1)), message);
    ++count_;
    for (int p = peer + 1; p <= last_; ++p) ++begin_of(p);
  }
  /// Moves the messages out of the list itself.
  void spill() {
    if (!long_.empty()) return;
    if (long_.capacity() == 0) long_ = Spares<Message>::take();
    long_.assign(few_.data(), few_.data() + count_);
  }

  /// Elements that are set when they are used.
  template <class T, int n>
  struct Unset {
    alignas(T) std::byte bytes[std::size_t(n) * sizeof(T)];
    T* data() { return reinterpret_cast<T*>(bytes); }
    const T* data() const { return reinterpret_cast<const T*>(bytes); }
  };

  int ranks_ = 0, count_ = 0, last_ = 0;
  Unset<Message, few> few_;
  Unset<int, few + 1> few_begin_;  // of each peer's messages, up to `last_`; later peers have none
  std::vector<Message> long_;      // all messages, if it is not empty
  std::vector<int> long_begin_;    // in place of `few_begin_` with more ranks
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
