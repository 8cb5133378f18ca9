#pragma once

#include <ccl/detail/base/exceptions.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Stop flag that all waiting lanes and threads of a communicator poll. `word()` is 0, or the
/// `Errc` of the first failure. Later failures are ignored.
class Status {
 public:
  /// Records a failure. Returns true if it is the first. Any thread.
  bool set(Error error) {
    const std::lock_guard lock{mutex_};
    if (word_.load(std::memory_order_relaxed) != 0) return false;
    error_ = std::move(error);
    word_.store(Word(error_.code), std::memory_order_release);
    if (copy_ != nullptr) copy(Word(error_.code));
    for (Status* follower : followers_) pass_on(*follower);
    return true;
  }
  /// Replaces the text of the first failure, once more is known. For whoever recorded it.
  void explain(std::string what) {
    const std::lock_guard lock{mutex_};
    error_.what = std::move(what);
  }
  /// Fails `follower`, too, as soon as this one fails or has failed: lanes poll one word, and may
  /// wait in a part of the communicator. It must live until `end_followers`.
  void add_follower(Status& follower) {
    const std::lock_guard lock{mutex_};
    followers_.push_back(&follower);
    if (!ok()) pass_on(follower);
  }
  void end_followers() {
    const std::lock_guard lock{mutex_};
    followers_.clear();
  }
  /// Keeps `at` equal to `word()`, for lanes that cannot read it. Null ends this.
  void copy_to(Word* at) {
    const std::lock_guard lock{mutex_};
    copy_ = at;
    if (at != nullptr) copy(word_.load(std::memory_order_relaxed));
  }
  /// Records that the process of `rank` exits in order, with its communicators alive. That is no
  /// failure: only a wait for that rank fails. Returns false if it was known. Any thread.
  bool set_departed(int rank) {
    const std::lock_guard lock{mutex_};
    if (std::find(departed_.begin(), departed_.end(), rank) != departed_.end()) return false;
    departed_.push_back(rank);
    any_departed_.store(true, std::memory_order_release);
    return true;
  }
  bool any_departed() const { return any_departed_.load(std::memory_order_acquire); }
  bool has_departed(int rank) const {
    if (!any_departed()) return false;
    const std::lock_guard lock{mutex_};
    return std::find(departed_.begin(), departed_.end(), rank) != departed_.end();
  }
  /// Returns the departed ranks, in the order in which this rank learned of them.
  std::vector<int> departed() const {
    const std::lock_guard lock{mutex_};
    return departed_;
  }
  /// Records that this rank departs itself: connections that others close are no failure any more.
  void set_leaving() { leaving_.store(true, std::memory_order_release); }
  bool is_leaving() const { return leaving_.load(std::memory_order_acquire); }
  bool ok() const { return word_.load(std::memory_order_acquire) == 0; }
  /// Returns the first failure, or success.
  Result<void> result() const {
    if (ok()) return {};
    const std::lock_guard lock{mutex_};
    return fail(error_);
  }
  /// Word that lanes poll. A failing lane may also write it, but only if it is 0; see `SpinWait`.
  std::atomic<Word>& word() { return word_; }

 private:
  /// Without the peer, whose number in a part is another.
  void pass_on(Status& follower) const noexcept {
    const auto done = without_exceptions([&]() -> Result<void> {
      Error error = error_;
      error.peer = -1;
      follower.set(std::move(error));
      return {};
    });
    if (!done) follower.set(Error{error_.code, {}});  // there is no memory for the text
  }
  void copy(Word value) { std::atomic_ref{*copy_}.store(value, std::memory_order_release); }

  std::atomic<Word> word_{0};
  Word* copy_ = nullptr;
  std::vector<Status*> followers_;
  std::atomic<bool> any_departed_{false}, leaving_{false};
  std::vector<int> departed_;
  mutable std::mutex mutex_;
  Error error_;
};

}  // namespace ccl::detail
