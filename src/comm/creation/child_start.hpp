#pragma once

#include <functional>
#include <utility>

namespace ccl::detail {

/// While it lives, each child that this thread creates by `split` or `shrink` calls `begun` with
/// its rank and its number of ranks, before it connects them. The scopes of a thread nest.
class ChildStart {
 public:
  using Begun = std::function<void(int rank, int ranks)>;
  explicit ChildStart(Begun begun) : begun_{std::move(begun)}, outer_{latest} { latest = this; }
  ~ChildStart() { latest = outer_; }
  ChildStart(const ChildStart&) = delete;
  ChildStart& operator=(const ChildStart&) = delete;

  static void notify(int rank, int ranks) {
    if (latest != nullptr && latest->begun_) latest->begun_(rank, ranks);
  }

 private:
  static inline thread_local ChildStart* latest = nullptr;
  const Begun begun_;
  ChildStart* const outer_;
};

}  // namespace ccl::detail
