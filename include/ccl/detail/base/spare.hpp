#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Vectors that calls of this thread have left for later calls, so that a repeated call allocates
/// nothing.
template <class T>
class Spares {
 public:
  /// Returns a vector with the elements that it was left with, or an empty one.
  static std::vector<T> take() {
    Spares* const here = of_this_thread();
    if (here == nullptr || here->count_ == 0) return {};
    return std::move(here->left_[--here->count_]);
  }
  /// For destructors: it needs no memory.
  static void leave(std::vector<T>&& used) noexcept {
    Spares* const here = of_this_thread();
    if (here == nullptr || used.capacity() == 0 || here->count_ == most) return;
    here->left_[here->count_++] = std::move(used);
  }

 private:
  static constexpr std::size_t most = 8;
  /// Returns null while the thread ends.
  static Spares* of_this_thread() {
    thread_local bool ended = false;  // has no destructor, so it may be read after `owner`'s end
    struct Owner {
      Spares all;
      bool& gone;
      ~Owner() { gone = true; }
    };
    if (ended) return nullptr;
    thread_local Owner owner{{}, ended};
    return &owner.all;
  }
  std::array<std::vector<T>, most> left_{};
  std::size_t count_ = 0;
};

/// Empty vector in memory that an earlier one of this thread has left.
template <class T>
class SpareVector {
 public:
  SpareVector() : held_{Spares<T>::take()} { held_.clear(); }
  ~SpareVector() { Spares<T>::leave(std::move(held_)); }
  SpareVector(const SpareVector&) = delete;
  SpareVector& operator=(const SpareVector&) = delete;

  std::vector<T>& operator*() { return held_; }
  const std::vector<T>& operator*() const { return held_; }
  std::vector<T>* operator->() { return &held_; }
  const std::vector<T>* operator->() const { return &held_; }

 private:
  std::vector<T> held_;
};

}  // namespace ccl::detail
