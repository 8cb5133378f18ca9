#pragma once

#include <ccl/types/word.hpp>

#include <atomic>
#include <vector>

#include <sched.h>

namespace ccl::detail {

/// Lets a proxy move steps of a wire between a socket and the user's memory, without a copy through
/// the slot. CPU lanes and the proxy's threads share it; each wire and end has its own.
///
/// - Sender's lanes call `lend` before they post the step. The step's size then carries `mark`. The
///   memory may change once the step is drained.
/// - Receiver's lanes call `offer` before they wait for the step. The proxy uses the memory only if
///   the step has exactly the offered number of bytes. The step's size then carries `mark`; without
///   `mark` the step is in its slot, because the proxy may have begun earlier.
/// - Receiver's lanes call `want` whenever they find steps missing. The proxy may leave other steps
///   in the socket for a moment.
/// - Lanes that fail call `revoke`: the memory belongs to its owner again.
class ZeroCopy {
 public:
  static constexpr Word mark = Word{1} << 63;          // in a step's size
  static constexpr Index min_bytes = Index{16} << 10;  // below it a copy costs less than the wait

  explicit ZeroCopy(int slot_count) : places_(std::size_t(slot_count)) {}

  void lend(Word step, const void* place) {
    places_[index(step)].at = const_cast<void*>(place);
    lent_ = step + 1;
  }
  /// Returns one more than the last step that was lent. Called by lanes.
  Word lent() const { return lent_; }
  /// Offers memory for a step; may be repeated.
  void offer(Word step, void* place, Index bytes) {
    if (offered_.load(std::memory_order_relaxed) == step + 1) return;
    places_[index(step)] = {place, bytes};
    offered_.store(step + 1, std::memory_order_release);
  }
  bool offered(Word step, Index bytes) const {
    return offered_.load(std::memory_order_acquire) == step + 1 &&
           places_[index(step)].bytes == bytes;
  }
  /// Announces that the lanes wait for the steps before `end`. `bytes` is the size of the last of
  /// them, -1 if unknown.
  void want(Word end, Index bytes) {
    if (wanted_.load(std::memory_order_relaxed) == end) return;
    wanted_bytes_.store(bytes, std::memory_order_relaxed);
    wanted_.store(end, std::memory_order_release);
  }
  /// Returns 0 if the lanes have not called `want`.
  Word wanted() const { return wanted_.load(std::memory_order_acquire); }
  Index wanted_bytes() const { return wanted_bytes_.load(std::memory_order_relaxed); }
  std::byte* place(Word step) const { return static_cast<std::byte*>(places_[index(step)].at); }

  /// Ends all use of the user's memory: after its return no proxy accesses it. Does not wait for
  /// any peer.
  void revoke() {
    revoked_.store(true);
    while (users_.load() != 0) ::sched_yield();
  }
  bool revoked() const { return revoked_.load(std::memory_order_relaxed); }

  /// Guard for each access of a proxy to a region. A null pointer guards nothing.
  class Use {
   public:
    explicit Use(ZeroCopy* zero_copy) : zero_copy_{zero_copy} {
      if (zero_copy_ == nullptr) return;
      zero_copy_->users_.fetch_add(1);  // before the check; `revoke` has the opposite order
      allowed_ = !zero_copy_->revoked_.load();
    }
    ~Use() {
      if (zero_copy_ != nullptr) zero_copy_->users_.fetch_sub(1);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    bool allowed() const { return allowed_; }

   private:
    ZeroCopy* const zero_copy_;
    bool allowed_ = true;
  };

 private:
  std::size_t index(Word step) const { return std::size_t(step) & (places_.size() - 1); }
  struct Region {
    void* at = nullptr;
    Index bytes = 0;  // offered
  };
  std::vector<Region> places_;
  Word lent_ = 0;
  std::atomic<Word> offered_{0}, wanted_{0};
  std::atomic<Index> wanted_bytes_{-1};
  std::atomic<bool> revoked_{false};
  std::atomic<int> users_{0};
};

}  // namespace ccl::detail
