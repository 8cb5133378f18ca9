#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include "net/auth.hpp"

namespace ccl::detail {

/// Agreement of the surviving ranks on the result of a shrink. A rank that dies in the last barrier
/// can let some ranks pass it and others fail. A rank that has failed asks all others, and succeeds
/// if any has passed. A rank that is asked earlier than its own result asks, too. So all surviving
/// ranks get the same result.
class ShrinkAgreement {
 public:
  explicit ShrinkAgreement(Bootstrap::Core& core) : core_(core) {}

  /// Returns true if the shrink has created this core. `passed`: this rank has passed the last
  /// barrier.
  bool is_made(bool passed);
  /// Returns the error of a shrink on this core, that of the surviving ranks, that created none.
  Result<void> failure(Result<void> passed);
  /// Answers another rank with one byte: 1 if the shrink has created this core.
  void on_ask(const net::Lock&, net::Accepted& one);

 private:
  Bootstrap::Core& core_;
  bool made_ = false;
  bool doubted_ = false;  // a rank has asked, so this rank must ask, too
};

}  // namespace ccl::detail
