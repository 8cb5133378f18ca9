#include "explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "median.hpp"
#include "report.hpp"
#include "traced_calls.hpp"

namespace ccl::perf {
namespace {

constexpr Index large_bytes = Index{4} << 20;  // of the message that shows a link's bandwidth

/// Time of a message from each rank to the next, on wires of the protocol. 0: this program does not
/// contain it.
Result<double> message_us(const Communicator& comm, const Sideband& sideband,
                          Compositions& compositions, const std::string& proto, Index bytes) {
  const auto runner = compositions.get_of("send_recv", {"Pairwise", proto});
  if (!runner)
    return runner.error().code == Errc::invalid_argument ? Result<double>{0}
                                                         : Result<double>{fail(runner.error())};
  std::vector<std::byte> out(std::size_t(bytes), std::byte{1}), in(out.size());
  Call call;
  call.send = out.data();
  call.recv = in.data();
  call.type = DataType::uint8;
  call.count = bytes;
  call.next = (comm.rank() + 1) % comm.ranks();
  call.prev = (comm.rank() + comm.ranks() - 1) % comm.ranks();
  std::vector<double> times;
  for (int n = 0; n < explained_calls; ++n) {
    CCL_CHECK(sideband.meet());
    const double begin = now_s();
    CCL_CHECK((*runner)->run(call));
    times.push_back((now_s() - begin) * 1e6);
  }
  return sideband.mean(*std::min_element(times.begin(), times.end()));  // it is a limit
}

}  // namespace

Result<Explained> explain(const Communicator& comm, const Options& options,
                          const Sideband& sideband, Compositions& compositions,
                          const Choice& choice, const Call& call, Index bytes) {
  CCL_TRY(const Runner* const runner, compositions.get(choice));
  const std::string name = fmt::format("{}/{}/{}", options.op, choice.algo, choice.proto);
  std::array<std::vector<double>, part_count> times;
  for (int n = 0; n < explained_calls; ++n) {
    CCL_CHECK(sideband.meet());
    CCL_CHECK(runner->run(call));
    const FlightRecord record = comm.flight_record();
    const std::vector<TracedCall> traced = traced_calls(record, name);
    const bool has_phases = !traced.empty() && traced.back().phases.ended_ns != 0;
    CCL_TRY(const double missing, sideband.most(has_phases ? 0 : 1));
    if (missing > 0) {
      return fail(Errc::not_supported,
                  fmt::format("the lanes of {} note no phases (only those over wires do); choose "
                              "another --algo",
                              choice.name()));
    }
    const PartTimes us = parts_of(traced.back());
    for (std::size_t p = 0; p < us.size(); ++p) times[p].push_back(us[p]);
  }
  Explained all;
  double* const into[part_count] = {&all.launch_us, &all.before_us, &all.first_hop_us,
                                    &all.steady_us, &all.tail_us};
  for (std::size_t p = 0; p < times.size(); ++p) {
    CCL_TRY(*into[p], sideband.mean(median(times[p])));
  }
  const Index slice = runner->plan().slot_bytes * runner->plan().slice_steps;
  const double came = compositions.volume(choice) * double(bytes);
  const Index first = std::clamp<Index>(Index(came), 1, slice);
  CCL_TRY(all.link_first_us, message_us(comm, sideband, compositions, choice.proto, first));
  CCL_TRY(const double large_us,
          message_us(comm, sideband, compositions, choice.proto, large_bytes));
  if (large_us > 0) all.link_gbs = double(large_bytes) / large_us / 1e3;
  if (all.steady_us > 0 && came > double(first)) {
    all.steady_gbs = (came - double(first)) / all.steady_us / 1e3;
  }
  return all;
}

}  // namespace ccl::perf
