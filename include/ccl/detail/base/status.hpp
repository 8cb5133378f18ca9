#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <atomic>
#include <mutex>

namespace ccl::detail {

/// Stop flag that all waiting lanes and threads of a communicator poll. `word()` is 0, or the
/// `Errc` of the first failure. Later failures are ignored.
class Status {
 public:
  /// Records a failure. Any thread.
  void set(Error error) {
    const std::lock_guard lock{mutex_};
    if (word_.load(std::memory_order_relaxed) != 0) return;
    error_ = std::move(error);
    word_.store(Word(error_.code), std::memory_order_release);
    if (copy_ != nullptr) copy(Word(error_.code));
  }
  /// Keeps `at` equal to `word()`, for lanes that cannot read it. Null ends this.
  void copy_to(Word* at) {
    const std::lock_guard lock{mutex_};
    copy_ = at;
    if (at != nullptr) copy(word_.load(std::memory_order_relaxed));
  }
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
  void copy(Word value) { std::atomic_ref{*copy_}.store(value, std::memory_order_release); }

  std::atomic<Word> word_{0};
  Word* copy_ = nullptr;
  mutable std::mutex mutex_;
  Error error_;
};

}  // namespace ccl::detail
