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

/// One call of a `Pipeline`, as far as types of elements do not matter.
struct PipelineCall {
  const Communicator& comm;
  const std::string& name;
  std::span<const StageShape> stages;
  bool keeps_place;
  const void* send;
  void* recv;
  Index count;  // of `send`
  const CallOrder& order;
  Stream stream;
};

/// Errors of what needs no other rank; those of counts and scratch are the same on all of them.
Result<void> check_call(const PipelineCall& call);
/// Collective: `Errc::mismatch` on all ranks where some ask for other scratch than rank 0.
Result<void> agree_on_scratch(const Communicator& comm, const std::string& name, Index bytes);

/// Makes all stages of `count` elements, a multiple of `min_count`: from `input` to `output`,
/// with what is in between where `place_results` says; the first of its buffers begins at
/// `buffers`.
using RunPass =
    std::function<Result<void>(const char* input, char* output, Index count, char* buffers)>;
/// The passes of a call, in order; see `plan_passes`.
Result<void> run_passes(const PipelineCall& call, const RunPass& run);

/// Counts and passes of a plan, whose stages have no names yet.
PipelinePlan plan_call(std::span<const StageShape> stages, Index count, bool keeps_place,
                       Index scratch_bytes);

}  // namespace ccl::detail
