#pragma once

#include <atomic>
#include <memory>

namespace ccl::detail {

/// Object of the process that is made at its first use and never destroyed, because threads use it
/// while static objects end. Declare it `static constinit`.
///
/// Not a static object with a guard: a child that is forked while another thread runs the
/// initializer would wait for that thread for ever. If two threads come first, both make one, and
/// the second is destroyed. So making one must have no effect outside of it.
template <class T>
class MadeOnce {
 public:
  T& get() {
    return get([] { return std::make_unique<T>(); });
  }
  /// `make()` returns a `std::unique_ptr<T>`.
  template <class Make>
  T& get(Make&& make) {
    T* known = made_.load(std::memory_order_acquire);
    if (known != nullptr) return *known;
    std::unique_ptr<T> mine = make();
    if (!made_.compare_exchange_strong(known, mine.get(), std::memory_order_acq_rel)) return *known;
    return *mine.release();
  }
  /// The object, or null before its first use. Allocates nothing, so that it cannot fail.
  T* found() const noexcept { return made_.load(std::memory_order_acquire); }

 private:
  std::atomic<T*> made_{nullptr};
};

}  // namespace ccl::detail
