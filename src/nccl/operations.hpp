#pragma once

#include <ccl/comm/communicator.hpp>

#include <memory>
#include <span>

#include "nccl/call.hpp"

namespace ccl::detail::nccl {

/// The collectives of one communicator, each made when it is first called, as all ranks then call
/// it; messages go between any two ranks, so what carries them is made at once.
class Operations {
 public:
  /// Collective.
  static Result<std::unique_ptr<Operations>> create(const Communicator& comm);
  virtual ~Operations() = default;
  virtual Result<void> run(const Call& call) = 0;
  /// Microseconds that this is thought to take. Not collective, and runs nothing.
  virtual Result<double> predict(const Call& call) const = 0;
  /// Sends and receives that go on at once.
  virtual Result<void> exchange(std::span<const Call> messages) = 0;
};

}  // namespace ccl::detail::nccl
