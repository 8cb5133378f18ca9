#pragma once

#include <ccl/types/result.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace ccl::detail {

struct CommState;
class IdlePairs;

/// Thread of a communicator that closes idle connections of its compositions and answers the other
/// ranks' requests to close theirs.
class IdleCloser {
 public:
  /// Starts the thread of `state`, unless it runs. One thread at a time creates compositions.
  static Result<void> start(CommState& state);
  /// Returns that thread; null if it has not been started.
  static IdleCloser* of(const CommState& state);

  explicit IdleCloser(CommState& state) : state_{state} {}
  ~IdleCloser();
  IdleCloser(const IdleCloser&) = delete;
  IdleCloser& operator=(const IdleCloser&) = delete;

  void add(IdlePairs* pairs);
  /// Returns when the thread does not use `pairs` and will not.
  void remove(IdlePairs* pairs);

 private:
  using Message = std::pair<int, std::vector<std::byte>>;  // with its sender
  void serve() noexcept;
  void serve_until_stopped();
  void take(const Message& message);
  void look();
  /// Seconds between two looks; 0: there is nothing to look at. The caller holds `pairs_mutex_`.
  double period_s() const;

  CommState& state_;        // owns this
  std::mutex pairs_mutex_;  // guards `pairs_`; held while the thread uses one of them
  std::vector<IdlePairs*> pairs_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Message> messages_;
  double period_s_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ccl::detail
