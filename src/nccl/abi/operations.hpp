#pragma once

#include <ccl/choose/choice.hpp>
#include <ccl/comm/communicator.hpp>

#include <memory>
#include <span>

#include "nccl/abi/call.hpp"

namespace ccl::detail::nccl {

class RealRank;
struct MemberConfig;

/// Collectives of one communicator. Each is created at its first call, which all ranks make.
/// Messages go between any two ranks, so their composition is created at once.
class Operations {
 public:
  /// Creates the operations. Collective.
  static Result<std::unique_ptr<Operations>> create(const Communicator& comm,
                                                    const MemberConfig& config);
  virtual ~Operations() = default;
  virtual Result<void> run(const Call& call) = 0;
  /// True if this library has code for the call's type and reduction. Equal on all ranks.
  virtual bool has_code(const Call&) const { return true; }
  /// The rank's communicator of the real NCCL; null: there is none.
  virtual std::shared_ptr<RealRank> real() const { return nullptr; }
  /// Returns what a call runs, which is not a message. Creates it if need be, as `run` does.
  virtual Result<Choice> choice(const Call& call) = 0;
  /// Predicted time of a call in us. Not collective, and runs nothing.
  virtual Result<double> predict(const Call& call) const = 0;
  /// Runs sends and receives at the same time.
  virtual Result<void> exchange(std::span<const Call> messages) = 0;
};

}  // namespace ccl::detail::nccl
