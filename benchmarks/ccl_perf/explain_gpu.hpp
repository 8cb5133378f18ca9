#pragma once

#include <map>
#include <string>

#include "compositions.hpp"
#include "side.hpp"
#include "traced_calls.hpp"

namespace ccl::perf {

/// Times the phases of calls of one rank on its GPU, by the kernels of the traced forms of its
/// compositions. It keeps references: all must outlive it.
class GpuExplainer {
 public:
  /// `large_bytes` are those of the message that shows the bandwidth of a link, at least 256.
  GpuExplainer(const Communicator& comm, const Options& options, Compositions& compositions,
               Index large_bytes = Index{64} << 20)
      : comm_{comm}, options_{options}, compositions_{compositions}, large_bytes_{large_bytes} {}

  /// Returns the medians of calls like `call` of `choice`, each begun by all ranks together, and
  /// the times of messages from each rank to the next. `bytes` is the size of the message. Fails
  /// with `Errc::not_supported` if this program has no traced form of `choice`, or the flight
  /// recorder is too small. Collective.
  Result<RankPhases> explain(Stage& stage, const Choice& choice, const Call& call, Index bytes);

 private:
  Result<std::vector<TracedCall>> make_calls(Stage& stage, const Runner& runner,
                                             const Choice& choice, const Call& call,
                                             FlightRecord& record);
  Result<double> message_us(Stage& stage, const Choice& choice, Index bytes, int in_a_row);
  Result<const Runner*> message_runner(const Choice& choice);
  Result<double> link_gbs(Stage& stage, const Choice& choice);

  const Communicator& comm_;
  const Options& options_;
  Compositions& compositions_;
  const Index large_bytes_;
  std::byte *out_ = nullptr, *in_ = nullptr;  // of messages; they stay, since peers may map them
  std::map<std::string, double> link_gbs_;    // by composition
};

}  // namespace ccl::perf
