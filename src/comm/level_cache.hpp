#pragma once

#include <ccl/types/result.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

namespace ccl::detail {

struct Levels;

/// Levels of a communicator, created with the first composition that needs them.
class LevelCache {
 public:
  /// Null until `keep` is called. Any thread.
  std::shared_ptr<const Levels> current() const;
  bool exist() const { return exist_.load(std::memory_order_acquire); }
  void keep(std::shared_ptr<const Levels> levels);

  /// Fails the levels on all their ranks.
  static void fail(const Levels& levels, const Error& error);
  /// First failure of a level. Its peer is a rank of the whole communicator.
  static std::optional<Error> failure(const Levels& levels);

 private:
  mutable std::mutex mutex_;  // any thread may fail the communicator
  std::shared_ptr<const Levels> levels_;
  std::atomic<bool> exist_{false};  // each call reads it
};

}  // namespace ccl::detail
