#include "timeline.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace report {
namespace {

using Ends = std::map<std::pair<std::string, ccl::Word>, ccl::Word>;  // by communicator and number

/// Ends of the collectives that a host has completed, by its first rank.
std::map<std::string, Ends> ends_by_host(const Records& records) {
  std::map<std::string, Ends> all;
  for (const auto& [communicator, ranks] : records) {
    for (const ccl::FlightRecord& of : ranks) {
      for (const ccl::Operation& op : of.status.operations) {
        if (op.number == 0 || op.state != ccl::OpState::done) continue;
        all[of.status.host].try_emplace({communicator, op.number}, op.ended_ns);
      }
    }
  }
  return all;
}

double median(std::vector<double> of) {
  if (of.empty()) return 0;
  const auto middle = of.begin() + std::ptrdiff_t(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

/// Nanoseconds to subtract from each host's times. The first host's clock counts.
std::map<std::string, double> shifts(const Records& records) {
  const auto ends = ends_by_host(records);
  std::map<std::string, double> shift;
  for (const auto& [host, mine] : ends) {
    std::vector<double> differences;
    for (const auto& [which, end] : mine) {
      const auto first = ends.begin()->second.find(which);
      if (first == ends.begin()->second.end()) continue;
      differences.push_back(double(end) - double(first->second));
    }
    shift[host] = median(std::move(differences));
  }
  return shift;
}

/// Row of a record, with times in ns as the host has them.
Row row_of(const ccl::FlightRecord& of) {
  Row row{of.communicator, of.name, of.status.host, of.status.rank, of.status.pid, {}};
  for (const ccl::Operation& op : of.status.operations) {
    Slice slice{op, double(op.queued_ns), -1, double(op.ended_ns)};
    if (op.started_ns != 0) slice.started_us = double(op.started_ns);
    if (op.ended_ns == 0) slice.ended_us = double(of.status.now_ns);
    row.slices.push_back(slice);
  }
  return row;
}

}  // namespace

std::vector<Row> timeline_of(const Records& records) {
  const auto shift = shifts(records);
  std::vector<Row> rows;
  double first = std::numeric_limits<double>::max();
  for (const auto& [communicator, ranks] : records) {
    for (const ccl::FlightRecord& of : ranks) {
      Row row = row_of(of);
      const auto known = shift.find(row.host);
      const double by = known == shift.end() ? 0 : known->second;
      for (Slice& slice : row.slices) {
        slice.queued_us -= by;
        slice.ended_us -= by;
        if (slice.started_us >= 0) slice.started_us -= by;
        first = std::min(first, slice.queued_us);
      }
      rows.push_back(std::move(row));
    }
  }
  for (Row& row : rows) {
    for (Slice& slice : row.slices) {
      slice.queued_us = (slice.queued_us - first) / 1e3;
      slice.ended_us = (slice.ended_us - first) / 1e3;
      if (slice.operation.started_ns != 0) slice.started_us = (slice.started_us - first) / 1e3;
    }
  }
  std::ranges::stable_sort(rows, {}, [](const Row& row) { return row.rank; });
  return rows;
}

}  // namespace report
