#include "explain_gpu.hpp"

#include <ccl/detail/lanes/phases.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "median.hpp"

namespace ccl::perf {
namespace {

constexpr int warm_calls = 2;
constexpr int samples = 5;  // of messages, of which the fastest counts
constexpr int small_in_a_row = 5, large_in_a_row = 2;
constexpr Index min_bytes = 128;  // of a message that shows a link's latency

/// Channels of a call. The log leaves out those that are more than it holds.
int channels_of(const TracedCall& call, const Plan& plan) {
  return call.channels < detail::PhaseLog::channels ? call.channels : plan.channels;
}

PartTimes medians_of(const std::vector<TracedCall>& traced, long long late_ns) {
  std::vector<double> times[part_count];
  for (const TracedCall& call : traced) {
    const PartTimes us = parts_of(call, late_ns);
    for (int p = 0; p < part_count; ++p) times[p].push_back(us[std::size_t(p)]);
  }
  PartTimes medians{};
  for (int p = 0; p < part_count; ++p) medians[std::size_t(p)] = median(times[p]);
  return medians;
}

}  // namespace

/// Makes the calls, and returns what their kernels noted. `record` gets the record that
/// holds it.
Result<std::vector<TracedCall>> GpuExplainer::make_calls(Stage& stage, const Runner& runner,
                                                         const Choice& choice, const Call& call,
                                                         FlightRecord& record) {
  for (int n = 0; n < warm_calls + explained_calls; ++n) {
    CCL_CHECK(stage.meet());
    CCL_CHECK(runner.run(call));
    CCL_CHECK(stage.queue().wait());
  }
  record = comm_.flight_record();
  const std::string name = fmt::format("{}/Traced<{}>/{}", options_.op, choice.algo, choice.proto);
  std::vector<TracedCall> traced = traced_calls(record, name);
  std::erase_if(traced, [](const TracedCall& of) { return of.phases.ended_ns == 0; });
  if (traced.size() < explained_calls) {
    return fail(Errc::not_supported,
                fmt::format("the flight recorder holds the phases of {} of {} calls of {}; set "
                            "CCL_FLIGHT_RECORDER_SIZE=256, or leave --explain out",
                            traced.size(), explained_calls, choice.name()));
  }
  traced.erase(traced.begin(), traced.end() - explained_calls);
  return traced;
}

/// Returns the composition of messages that is closest to `choice`. Null: this program has none.
Result<const Runner*> GpuExplainer::message_runner(const Choice& choice) {
  for (const std::string& algo : {choice.algo, std::string{"Pairwise"}}) {
    const auto runner = compositions_.get_of("send_recv", {algo, choice.proto});
    if (runner || runner.error().code != Errc::invalid_argument) return runner;
  }
  return nullptr;
}

/// Returns the time of a message from each rank to the next, in microseconds of one of several in a
/// row. 0: this program does not contain it.
Result<double> GpuExplainer::message_us(Stage& stage, const Choice& choice, Index bytes,
                                        int in_a_row) {
  CCL_TRY(const Runner* const runner, message_runner(choice));
  if (runner == nullptr) return 0;
  if (out_ == nullptr) {
    CCL_TRY(out_, gpu::allocate(large_bytes_));
    CCL_TRY(in_, gpu::allocate(large_bytes_));
  }
  Call call;
  call.send = out_;
  call.recv = in_;
  call.type = DataType::uint8;
  call.count = bytes;
  call.next = (comm_.rank() + 1) % comm_.ranks();
  call.prev = (comm_.rank() + comm_.ranks() - 1) % comm_.ranks();
  call.stream = stage.queue().stream();
  CCL_CHECK(stage.meet());
  CCL_CHECK(runner->run(call));  // opens the wires
  CCL_CHECK(stage.queue().wait());
  std::vector<double> times;
  for (int n = 0; n < samples; ++n) {
    CCL_TRY(const double us, stage.clock([&]() -> Result<void> {
      for (int i = 0; i < in_a_row; ++i) CCL_CHECK(runner->run(call));
      return {};
    }));
    times.push_back(us / in_a_row);
  }
  return *std::min_element(times.begin(), times.end());  // it is a limit
}

/// Returns the bandwidth of a large message, without the time that a small one takes. 0: this
/// program does not contain it.
Result<double> GpuExplainer::link_gbs(Stage& stage, const Choice& choice) {
  if (const auto found = link_gbs_.find(choice.name()); found != link_gbs_.end()) {
    return found->second;
  }
  CCL_TRY(const double small_us, message_us(stage, choice, min_bytes, small_in_a_row));
  CCL_TRY(const double large_us, message_us(stage, choice, large_bytes_, large_in_a_row));
  const double us = large_us - small_us;
  return link_gbs_[choice.name()] = us > 0 ? double(large_bytes_ - min_bytes) / us / 1e3 : 0;
}

Result<RankPhases> GpuExplainer::explain(Stage& stage, const Choice& choice, const Call& call,
                                         Index bytes) {
  if (comm_.ranks() == 1) {
    return fail(Errc::not_supported,
                "one rank alone gets no data from others; --explain needs --ranks 2 or more");
  }
  CCL_TRY(const Runner* const runner, compositions_.get_traced(choice));
  FlightRecord record;
  CCL_TRY(const auto traced, make_calls(stage, *runner, choice, call, record));
  CCL_TRY(const long long clock_ns, stage.queue().lane_clock_ns());
  RankPhases of;
  of.us = medians_of(traced, clock_ns - record.lane_clock_ns);
  of.receives = traced.back().phases.first_data_ns != 0;
  const Plan& plan = runner->plan();
  const double came = compositions_.volume(choice) * double(bytes);
  // Lanes over peers' memory do not tell how much their first data is.
  const bool over_wires = compositions_.over_wires(choice);
  const Index part = std::max<Index>(
      plan.slot_bytes * plan.chunk_steps * channels_of(traced.back(), plan), min_bytes);
  const Index first = std::clamp<Index>(Index(came), 1, over_wires ? part : min_bytes);
  if (over_wires) of.steady_bytes = std::max(came - double(part), 0.);
  if (!over_wires) of.data_bytes = came;
  CCL_TRY(of.link_first_us,
          message_us(stage, choice, std::min(first, large_bytes_), small_in_a_row));
  CCL_TRY(of.link_gbs, link_gbs(stage, choice));
  return of;
}

}  // namespace ccl::perf
