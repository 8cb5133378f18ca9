#pragma once

#include <ccl/detail/transport/registered_memory.hpp>

#include <atomic>
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
  template <class Registration, class Make>
  std::shared_ptr<Registration> with(const void* device, Make make) {
    const std::lock_guard lock{mutex_};
    for (const Made& known : made_) {
      if (known.device == device) return std::static_pointer_cast<Registration>(known.made);
    }
    // Connections that close when they are idle would leave one behind each time.
    std::erase_if(made_, [](const Made& known) { return known.has_ended(known.made.get()); });
    std::shared_ptr<Registration> made = make();
    if (made != nullptr) made_.push_back({device, made, has_ended<Registration>});
    return made;
  }

 private:
  struct Made {
    const void* device;
    std::shared_ptr<void> made;
    bool (*has_ended)(const void* registration);
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
  std::vector<Made> made_;
};

/// Adds memory to the table of the process, and takes it out.
void add_registered(std::shared_ptr<RegisteredMemory> memory);
void remove_registered(const RegisteredMemory& memory);

}  // namespace ccl::detail
