#pragma once

#include <ccl/collective/stages.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/detail/launch/call_order.hpp>
#include <ccl/detail/pipeline/layout.hpp>

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ccl::detail {

/// One call of a `Pipeline`, independent of the element types.
struct PipelineCall {
  const Communicator& comm;
  const std::string& name;
  std::span<const StageShape> stages;
  bool keeps_place;
  const void* send;
  void* recv;
  Index count;  // elements of `send`
  const CallOrder& order;
  Stream stream;
};

/// Checks the arguments that need no other rank. Errors of counts and scratch are equal on all
/// ranks.
Result<void> check_call(const PipelineCall& call);
/// Fails with `Errc::mismatch` on all ranks if the scratch size of a rank differs from rank 0's.
/// Collective.
Result<void> agree_on_scratch(const Communicator& comm, const std::string& name, Index bytes);

/// Runs all stages on `count` elements, a multiple of `min_count`, from `input` to `output`.
/// Intermediate results lie where `place_results` puts them. The first of its buffers begins at
/// `buffers`.
using RunPass =
    std::function<Result<void>(const char* input, char* output, Index count, char* buffers)>;
/// Runs the passes of a call, in order; see `plan_passes`.
Result<void> run_passes(const PipelineCall& call, const RunPass& run);

/// Returns the counts and passes of a plan. Its stages have no names yet.
PipelinePlan plan_call(std::span<const StageShape> stages, Index count, bool keeps_place,
                       Index scratch_bytes);

}  // namespace ccl::detail
