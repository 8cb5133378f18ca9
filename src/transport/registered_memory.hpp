#pragma once

#include <ccl/detail/transport/registered_memory.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace ccl::detail {

class RegisteredMemory {
 public:
  RegisteredMemory(std::byte* base, Index bytes) : base_{base}, bytes_{bytes} {}

  std::byte* base() const { return base_; }
  Index bytes() const { return bytes_; }
  bool contains(const void* at, Index bytes) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(base_);
    const auto from = reinterpret_cast<std::uintptr_t>(at);
    return from >= begin && bytes <= bytes_ && from - begin <= std::uintptr_t(bytes_ - bytes);
  }
  /// False once a device could not register the memory: it goes through slots then.
  bool fit() const { return fit_.load(std::memory_order_relaxed); }
  /// Records that a device could not register the memory. Returns true the first time.
  bool give_up() { return fit_.exchange(false); }

  /// Returns the registration with a device, which `make()` makes once; null if it makes none. The
  /// registration must keep the device. It may have `ended()`: once that is true, and the device is
  /// not asked for again, it is forgotten.
  ///
  /// `make()` may never return, so only threads that ask for the same device wait for it.
  template <class Registration, class Make>
  std::shared_ptr<Registration> with(const void* device, Make make) {
    std::unique_lock lock{mutex_};
    for (auto known = find(device); known != made_.end(); known = find(device)) {
      if (known->made != nullptr) return std::static_pointer_cast<Registration>(known->made);
      making_.wait(lock);
    }
    // Connections that close when they are idle would leave one behind each time.
    std::erase_if(made_, [](const Made& known) {
      return known.made != nullptr && known.has_ended(known.made.get());
    });
    made_.push_back({device, nullptr, has_ended<Registration>});
    lock.unlock();
    std::shared_ptr<Registration> made;
    {
      const Making<Registration> making{*this, device, made};
      made = make();
    }
    return made;
  }

 private:
  struct Made {
    const void* device;
    std::shared_ptr<void> made;  // null while it is made
    bool (*has_ended)(const void* registration);
  };
  std::vector<Made>::iterator find(const void* device) {
    return std::ranges::find(made_, device, &Made::device);
  }
  /// A call of `make()`, which may throw. Its end records `made`.
  template <class Registration>
  struct Making {
    RegisteredMemory& of;
    const void* device;
    const std::shared_ptr<Registration>& made;
    ~Making() {
      const std::lock_guard lock{of.mutex_};
      const auto at = of.find(device);
      if (made != nullptr) {
        at->made = made;
      } else {
        of.made_.erase(at);
      }
      of.making_.notify_all();
    }
  };
  template <class Registration>
  static bool has_ended(const void* registration) {
    if constexpr (requires(const Registration& one) { one.ended(); }) {
      return static_cast<const Registration*>(registration)->ended();
    } else {
      return false;
    }
  }

  std::byte* const base_;
  const Index bytes_;
  std::atomic<bool> fit_{true};
  std::mutex mutex_;
  std::condition_variable making_;
  std::vector<Made> made_;
};

/// Adds memory to the table of the process, and takes it out.
void add_registered(std::shared_ptr<RegisteredMemory> memory);
void remove_registered(const RegisteredMemory& memory);

}  // namespace ccl::detail
