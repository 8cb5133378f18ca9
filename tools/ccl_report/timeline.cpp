#include "timeline.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <utility>

namespace report {
namespace {

/// Time since `base`. Since 1970, a double would be exact to 128 ns only.
double since(ccl::Word base, ccl::Word ns) {
  return double(static_cast<long long>(ns - base));
}

/// Earliest call of all records; 0: there is none.
ccl::Word first_call(const Records& records) {
  ccl::Word first = 0;
  for (const auto& [communicator, ranks] : records) {
    for (const ccl::FlightRecord& of : ranks) {
      for (const ccl::Operation& op : of.status.operations) {
        if (op.queued_ns != 0 && (first == 0 || op.queued_ns < first)) first = op.queued_ns;
      }
    }
  }
  return first;
}

/// First of these times that is known; 0: none is.
ccl::Word first_known(std::initializer_list<ccl::Word> times) {
  for (const ccl::Word ns : times) {
    if (ns != 0) return ns;
  }
  return 0;
}

/// Times of a channel in ns. Each is at least the one before.
Phases phases_of(const ccl::LanePhases& of, ccl::Word base) {
  Phases phases;
  phases.of = of;
  phases.begun_us = since(base, of.begun_ns);
  phases.ready_us = std::max(phases.begun_us, since(base, of.ready_ns));
  phases.first_data_us = std::max(phases.ready_us, since(base, of.first_data_ns));
  phases.last_data_us = std::max(phases.first_data_us, since(base, of.last_data_ns));
  phases.ended_us = std::max(phases.last_data_us, since(base, of.ended_ns));
  return phases;
}

Move move_of(const ccl::Transfer& of, ccl::Word base) {
  Move move;
  move.of = of;
  move.begin_us = since(base, first_known({of.begin_ns, of.posted_ns, of.end_ns}));
  move.posted_us = of.posted_ns == 0 ? move.begin_us : since(base, of.posted_ns);
  move.end_us = std::max(move.begin_us, since(base, of.end_ns));
  return move;
}

/// Calls `change` with each time of a row.
template <class F>
void for_times(Row& row, F change) {
  for (Slice& slice : row.slices) {
    change(slice.queued_us);
    change(slice.ended_us);
    if (slice.operation.started_ns != 0) change(slice.started_us);
  }
  for (Phases& of : row.phases) {
    for (double* time :
         {&of.begun_us, &of.ready_us, &of.first_data_us, &of.last_data_us, &of.ended_us}) {
      change(*time);
    }
  }
  for (Move& of : row.moves) {
    for (double* time : {&of.posted_us, &of.begin_us, &of.end_us}) change(*time);
  }
}

/// Operation with times in ns. It ends at the time of the record if it has not ended.
Slice slice_of(const ccl::Operation& op, ccl::Word now_ns, ccl::Word base) {
  Slice slice{op, since(base, first_known({op.queued_ns, op.started_ns, op.ended_ns, now_ns}))};
  double latest_us = slice.queued_us;
  if (op.started_ns != 0) latest_us = slice.started_us = since(base, op.started_ns);
  slice.ended_us =
      op.ended_ns != 0 ? since(base, op.ended_ns) : std::max(latest_us, since(base, now_ns));
  return slice;
}

/// Row of a record, with times in ns as the host has them. It lacks what has no time: that would
/// stand in 1970, and the rest decades after it.
Row row_of(const ccl::FlightRecord& of, ccl::Word base) {
  Row row;
  row.communicator = of.communicator;
  row.name = of.name;
  row.host = of.status.host;
  row.ranks = of.ranks;
  row.rank = of.status.rank;
  row.pid = of.status.pid;
  for (const ccl::LanePhases& phases : of.phases) {
    if (phases.begun_ns != 0) row.phases.push_back(phases_of(phases, base));
  }
  for (const ccl::Transfer& one : of.transfers) {
    if (one.end_ns != 0) row.moves.push_back(move_of(one, base));
  }
  for (const ccl::Operation& op : of.status.operations) {
    const ccl::Word now_ns = of.status.now_ns;
    if (first_known({op.queued_ns, op.started_ns, op.ended_ns, now_ns}) == 0) continue;
    row.slices.push_back(slice_of(op, now_ns, base));
  }
  return row;
}

}  // namespace

std::vector<Row> timeline_of(const Records& records) {
  const auto shift = clock_shifts(records);
  const ccl::Word base = first_call(records);
  std::vector<Row> rows;
  double first = std::numeric_limits<double>::max();
  for (const auto& [communicator, ranks] : records) {
    for (const ccl::FlightRecord& of : ranks) {
      Row row = row_of(of, base);
      const auto known = shift.find(row.host);
      const double by = known == shift.end() ? 0 : known->second;
      for_times(row, [by](double& time) { time -= by; });
      for_times(row, [&first](double& time) { first = std::min(first, time); });
      rows.push_back(std::move(row));
    }
  }
  for (Row& row : rows) {
    for_times(row, [first](double& time) { time = (time - first) / 1e3; });
  }
  std::ranges::stable_sort(rows, {}, [](const Row& row) { return row.rank; });
  return rows;
}

}  // namespace report
