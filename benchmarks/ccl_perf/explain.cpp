#include "explain.hpp"

#include <ccl/comm/flight_record.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "report.hpp"

namespace ccl::perf {
namespace {

constexpr int calls = 15;
constexpr Index large_bytes = Index{4} << 20;  // of the message that shows a link's bandwidth
constexpr int parts = 5;
using PartTimes = std::array<double, parts>;  // us, in the order of `Explained`

/// Latest call of a composition, and the phases of all its channels.
struct Latest {
  const Operation* op = nullptr;
  LanePhases phases;
};

Latest latest(const FlightRecord& record, std::string_view name) {
  Latest found;
  for (const Operation& op : record.status.operations) {
    if (std::string_view{op.what}.starts_with(name)) found.op = &op;
  }
  if (found.op == nullptr) return found;
  const auto earliest = [](Word& at, Word other) {
    if (other != 0 && (at == 0 || other < at)) at = other;
  };
  for (const LanePhases& of : record.phases) {
    if (of.composition != found.op->composition || of.call != found.op->call) continue;
    earliest(found.phases.begun_ns, of.begun_ns);
    earliest(found.phases.ready_ns, of.ready_ns);
    earliest(found.phases.first_data_ns, of.first_data_ns);
    found.phases.last_data_ns = std::max(found.phases.last_data_ns, of.last_data_ns);
    found.phases.ended_ns = std::max(found.phases.ended_ns, of.ended_ns);
  }
  return found;
}

/// PartTimes between the phases. A rank that receives nothing has no time of data.
PartTimes parts_of(const Latest& of) {
  const std::array<Word, parts> ends{of.phases.begun_ns, of.phases.ready_ns,
                                     of.phases.first_data_ns, of.phases.last_data_ns,
                                     of.phases.ended_ns};
  PartTimes us{};
  Word at = of.op->queued_ns;
  for (std::size_t n = 0; n < ends.size(); ++n) {
    if (ends[n] <= at) continue;
    us[n] = double(ends[n] - at) / 1e3;
    at = ends[n];
  }
  return us;
}

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
  for (int n = 0; n < calls; ++n) {
    CCL_CHECK(sideband.meet());
    const double begin = now_s();
    CCL_CHECK((*runner)->run(call));
    times.push_back((now_s() - begin) * 1e6);
  }
  return sideband.mean(*std::min_element(times.begin(), times.end()));  // it is a limit
}

}  // namespace

std::string Explained::text() const {
  const double all = std::max(total_us(), 1e-9);
  const auto part = [&](const char* name, double us) {
    return fmt::format("{} {:.2f} us ({:.0f} %", name, us, 100 * us / all);
  };
  std::string text = part("launch", launch_us) + ")";
  if (before_us > 0) text += ", " + part("opening", before_us) + ")";
  text += ", " + part("first hop", first_hop_us);
  if (link_first_us > 0) {
    text += fmt::format("; {:.1f} times a message's {:.2f} us", first_hop_us / link_first_us,
                        link_first_us);
  }
  text += "), " + part("steady state", steady_us);
  if (link_gbs > 0 && steady_gbs > 0) {
    text += fmt::format("; {:.2f} of the link's {:.2f} GB/s", steady_gbs, link_gbs);
  }
  return text + "), " + part("tail", tail_us) + ")";
}

Result<Explained> explain(const Communicator& comm, const Options& options,
                          const Sideband& sideband, Compositions& compositions,
                          const Choice& choice, const Call& call, Index bytes) {
  CCL_TRY(const Runner* const runner, compositions.get(choice));
  const std::string name = fmt::format("{}/{}/{}", options.op, choice.algo, choice.proto);
  std::array<std::vector<double>, parts> times;
  for (int n = 0; n < calls; ++n) {
    CCL_CHECK(sideband.meet());
    CCL_CHECK(runner->run(call));
    const FlightRecord record = comm.flight_record();
    const Latest found = latest(record, name);
    const bool has_phases = found.op != nullptr && found.phases.ended_ns != 0;
    CCL_TRY(const double missing, sideband.most(has_phases ? 0 : 1));
    if (missing > 0) {
      return fail(Errc::not_supported,
                  fmt::format("the lanes of {} note no phases (only those over wires do); choose "
                              "another --algo",
                              choice.name()));
    }
    const PartTimes us = parts_of(found);
    for (std::size_t p = 0; p < us.size(); ++p) times[p].push_back(us[p]);
  }
  Explained all;
  double* const into[parts] = {&all.launch_us, &all.before_us, &all.first_hop_us, &all.steady_us,
                               &all.tail_us};
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
