#include <ccl/detail/launch/arguments.hpp>
#include <ccl/detail/map/elements.hpp>
#include <ccl/detail/pipeline/call.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "comm/state.hpp"

namespace ccl::detail {
namespace {

Index in_bytes(const PipelineCall& call) {
  return call.stages.front().in_bytes;
}
Index out_bytes(const PipelineCall& call) {
  return call.stages.back().out_bytes;
}
Passes passes_of(const PipelineCall& call) {
  return plan_passes(call.stages, call.count, call.keeps_place, call.order.scratch_bytes());
}
Result<void> copy(const PipelineCall& call, void* to, const void* from, Index bytes) {
  return copy_own(call.comm, call.comm.device() >= 0, to, from, bytes, call.stream);
}

/// Runs a pass whose input and output lie in scratch. `gather` fills the input, `spread` takes the
/// output.
template <class Gather, class Spread>
Result<void> run_staged(const PipelineCall& call, const RunPass& run, Index count, Gather gather,
                        Spread spread) {
  const StagedPass at = staged_pass(call.stages, count, call.keeps_place);
  char* const scratch = call.order.scratch();
  CCL_CHECK(gather(scratch));
  CCL_CHECK(run(scratch, scratch + at.output, count, scratch + at.buffers));
  return spread(scratch + at.output);
}

/// Runs neighboring elements, filled up to a whole number of units with some of their own. A
/// functor never sees other elements.
Result<void> run_filled(const PipelineCall& call, const RunPass& run, Index at, Index count,
                        Index unit) {
  const Index in = in_bytes(call), whole = (count + unit - 1) / unit * unit;
  const auto gather = [&](char* to) -> Result<void> {
    CCL_CHECK(copy(call, to, static_cast<const char*>(call.send) + at * in, count * in));
    return fill_up(call.comm, call.comm.device() >= 0, to, count * in, whole * in, call.stream);
  };
  const auto spread = [&](const char* from) {
    const Index out = out_bytes(call);
    return copy(call, static_cast<char*>(call.recv) + at * out, from, count * out);
  };
  return run_staged(call, run, whole, gather, spread);
}

/// Runs elements `at` to `at + each` of each block into which the stages cut the message.
Result<void> run_columns(const PipelineCall& call, const RunPass& run, Index at, Index each,
                         Index unit) {
  const Index stride = call.count / unit, blocks = count_after(call.stages, unit);
  const auto gather = [&](char* to) -> Result<void> {
    const Index in = in_bytes(call);
    for (Index b = 0; b < unit; ++b) {
      CCL_CHECK(copy(call, to + b * each * in,
                     static_cast<const char*>(call.send) + (b * stride + at) * in, each * in));
    }
    return {};
  };
  const auto spread = [&](const char* from) -> Result<void> {
    const Index out = out_bytes(call);
    for (Index b = 0; b < blocks; ++b) {
      CCL_CHECK(copy(call, static_cast<char*>(call.recv) + (b * stride + at) * out,
                     from + b * each * out, each * out));
    }
    return {};
  };
  return run_staged(call, run, each * unit, gather, spread);
}

}  // namespace

Result<void> agree_on_scratch(const Communicator& comm, const std::string& name, Index bytes) {
  CommState& state = *Access::state(comm);
  if (state.identity.ranks() == 1) return {};
  std::vector<Index> all(std::size_t(state.identity.ranks()), Index{0});
  all[std::size_t(state.identity.rank())] = bytes;
  {
    const auto lock = state.rendezvous.lock();
    CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
        all.data(), Index{sizeof bytes}, {}, {"the creation of", name})));
  }
  const auto other = std::find_if(all.begin(), all.end(), [&](Index b) { return b != all[0]; });
  if (other == all.end()) return {};
  Error error{Errc::mismatch,
              fmt::format("ranks give {} different scratch: rank 0 {} bytes, rank {} {}; give the "
                          "same on all",
                          name, all[0], other - all.begin(), *other)};
  error.peer = int(other - all.begin());
  return fail(state.annotate(std::move(error)));
}

Result<void> check_call(const PipelineCall& call) {
  const CommState& state = *Access::state(call.comm);
  const auto refuse = [&](Errc code, std::string what) {
    return fail(state.annotate({code, call.name + " " + std::move(what)}));
  };
  CCL_CHECK(check_buffer(call.comm, "send", call.send, call.count, in_bytes(call)));
  const Index unit = min_count(call.stages);
  const Index after = call.keeps_place ? call.count : count_after(call.stages, call.count);
  if (!call.keeps_place && call.count % unit != 0) {
    return refuse(Errc::invalid_argument,
                  fmt::format("was given {} elements, which its stages cut into {} equal blocks; "
                              "give it a multiple of {}",
                              call.count, unit, unit));
  }
  CCL_CHECK(check_buffer(call.comm, "recv", call.recv, after, out_bytes(call)));
  const auto* const from = static_cast<const char*>(call.send);
  const auto* const to = static_cast<const char*>(call.recv);
  const Index sent = call.count * in_bytes(call), received = after * out_bytes(call);
  const bool may_be_one = call.keeps_place && in_bytes(call) == out_bytes(call);
  if (sent > 0 && from + sent > to && to + received > from && !(may_be_one && from == to)) {
    return refuse(Errc::invalid_argument,
                  fmt::format("was given {} bytes at {} to send and {} at {} to receive, which "
                              "overlap; give it {}",
                              sent, call.send, received, call.recv,
                              may_be_one ? "one buffer for both, or two that lie apart"
                                         : "two buffers that lie apart"));
  }
  if (sent == 0) return {};
  const Passes passes = passes_of(call);
  if ((passes.straight == 0 || passes.straight_step > 0) &&
      (passes.straight == call.count || passes.staged_step > 0)) {
    return {};
  }
  const Index least = staged_pass(call.stages, unit, call.keeps_place).end + 4 * scratch_line;
  return refuse(Errc::over_budget,
                fmt::format("has {} bytes of scratch, and {} elements of {} bytes, the fewest that "
                            "it takes at once, want {}; give create that many scratch_bytes",
                            call.order.scratch_bytes(), unit, in_bytes(call), least));
}

Result<void> run_passes(const PipelineCall& call, const RunPass& run) {
  const Passes passes = passes_of(call);
  for (Index at = 0; at < passes.straight; at += passes.straight_step) {
    const Index n = std::min(passes.straight_step, passes.straight - at);
    CCL_CHECK(run(static_cast<const char*>(call.send) + at * in_bytes(call),
                  static_cast<char*>(call.recv) + at * out_bytes(call), n, call.order.scratch()));
  }
  if (!call.keeps_place) {
    const Index each = (call.count - passes.straight) / passes.unit;
    const Index step = passes.staged_step / passes.unit;
    for (Index at = 0; at < each; at += step) {
      CCL_CHECK(run_columns(call, run, at, std::min(step, each - at), passes.unit));
    }
    return {};
  }
  for (Index at = passes.straight; at < call.count; at += passes.staged_step) {
    const Index n = std::min(passes.staged_step, call.count - at);
    CCL_CHECK(run_filled(call, run, at, n, passes.unit));
  }
  return {};
}

PipelinePlan plan_call(std::span<const StageShape> stages, Index count, bool keeps_place,
                       Index scratch_bytes) {
  const Passes passes = plan_passes(stages, count, keeps_place, scratch_bytes);
  const auto times = [](Index all, Index step) {
    return all == 0 || step == 0 ? 0 : (all + step - 1) / step;
  };
  const Index staged = count - passes.straight;
  PipelinePlan plan;
  plan.passes = times(passes.straight, passes.straight_step) + times(staged, passes.staged_step);
  Index n = passes.straight > 0 ? std::min(passes.straight, passes.straight_step)
                                : std::min((staged + passes.unit - 1) / passes.unit * passes.unit,
                                           passes.staged_step);
  for (const StageShape& stage : stages) {
    const Index after = count_after({&stage, 1}, n);
    plan.stages.push_back({"", stage.ranks, n, after});
    n = after;
  }
  return plan;
}

}  // namespace ccl::detail

namespace ccl {

std::string PipelinePlan::text() const {
  std::string all;
  for (const Stage& stage : stages) {
    all += fmt::format("{}, {} {}: {} to {} elements\n", stage.runs, stage.ranks,
                       stage.ranks == 1 ? "rank" : "ranks", stage.in, stage.out);
  }
  return all + fmt::format("in {} {}\n", passes, passes == 1 ? "pass" : "passes");
}

}  // namespace ccl
