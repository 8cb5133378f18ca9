#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "timeline.hpp"

namespace report {
namespace {

double difference(ccl::Word ns, ccl::Word from_ns) {
  return double(static_cast<long long>(ns - from_ns));
}

double median(std::vector<double> of) {
  if (of.empty()) return 0;
  const auto middle = of.begin() + std::ptrdiff_t(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

using Ends = std::map<std::pair<std::string, ccl::Word>, ccl::Word>;  // by communicator and number

/// Ends of the collectives that a host has completed, by its first rank.
std::map<std::string, Ends> ends_by_host(const Records& records) {
  std::map<std::string, Ends> all;
  for (const auto& [communicator, ranks] : records) {
    for (const ccl::FlightRecord& of : ranks) {
      if (of.status.operations.empty()) continue;
      Ends& ends = all[of.status.host];
      for (const ccl::Operation& op : of.status.operations) {
        if (op.number == 0 || op.state != ccl::OpState::done || op.ended_ns == 0) continue;
        ends.try_emplace({communicator, op.number}, op.ended_ns);
      }
    }
  }
  return all;
}

using Step = std::tuple<std::string, int, int, int, int, int, ccl::Word>;
Step step_of(const ccl::FlightRecord& record, const ccl::Transfer& of) {
  const int me = record.status.rank;
  return {record.communicator,
          of.sends ? me : of.peer,
          of.sends ? of.peer : me,
          of.composition,
          of.channel,
          of.stream,
          of.step};
}

using HostPair = std::pair<std::string, std::string>;

/// Smallest time from the begin of a step at a host to its end at another, by their own clocks.
std::map<HostPair, double> fastest_steps(const Records& records) {
  struct Sent {
    const std::string* host;
    ccl::Word begin_ns;
  };
  std::map<Step, Sent> sent;
  for (const auto& [communicator, ranks] : records) {
    for (const ccl::FlightRecord& of : ranks) {
      for (const ccl::Transfer& one : of.transfers) {
        if (!one.sends || one.begin_ns == 0) continue;
        sent.try_emplace(step_of(of, one), Sent{&of.status.host, one.begin_ns});
      }
    }
  }
  std::map<HostPair, double> fastest;
  for (const auto& [communicator, ranks] : records) {
    for (const ccl::FlightRecord& of : ranks) {
      for (const ccl::Transfer& one : of.transfers) {
        if (one.sends || one.end_ns == 0) continue;
        const auto from = sent.find(step_of(of, one));
        if (from == sent.end() || *from->second.host == of.status.host) continue;
        const double ns = difference(one.end_ns, from->second.begin_ns);
        const auto known = fastest.try_emplace({*from->second.host, of.status.host}, ns).first;
        known->second = std::min(known->second, ns);
      }
    }
  }
  return fastest;
}

/// Replaces the shifts of hosts that steps reach from the first host, there and back. Of several
/// ways it takes the fastest links.
void refine(std::map<std::string, double>& shifts, const std::map<HostPair, double>& fastest) {
  std::set<std::string> known{shifts.begin()->first};
  for (;;) {
    double best_ns = std::numeric_limits<double>::max();
    std::string next;
    double shift = 0;
    for (const auto& [hosts, there] : fastest) {
      const auto& [from, to] = hosts;
      const auto back = fastest.find({to, from});
      if (back == fastest.end() || known.count(from) == 0 || known.count(to) != 0) continue;
      if (there + back->second >= best_ns || shifts.count(to) == 0) continue;
      best_ns = there + back->second;
      next = to;
      shift = shifts[from] + (there - back->second) / 2;
    }
    if (next.empty()) return;
    shifts[next] = shift;
    known.insert(next);
  }
}

}  // namespace

std::map<std::string, double> clock_shifts(const Records& records) {
  const auto ends = ends_by_host(records);
  std::map<std::string, double> shifts;
  for (const auto& [host, mine] : ends) {
    std::vector<double> differences;
    for (const auto& [which, end] : mine) {
      const auto first = ends.begin()->second.find(which);
      if (first == ends.begin()->second.end()) continue;
      differences.push_back(difference(end, first->second));
    }
    shifts[host] = median(std::move(differences));
  }
  if (!shifts.empty()) refine(shifts, fastest_steps(records));
  return shifts;
}

}  // namespace report
