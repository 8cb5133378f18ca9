#pragma once

#include <ccl/comm/flight_record.hpp>

#include <map>
#include <string>
#include <vector>

namespace report {

using Records = std::map<std::string, std::vector<ccl::FlightRecord>>;  // by communicator

/// Operation of a rank. Times are us since the first event of the timeline.
struct Slice {
  ccl::Operation operation;
  double queued_us = 0;
  double started_us = -1;  ///< -1: it has not begun
  double ended_us = 0;     ///< end, or the time of the record if it has not ended
};

/// Phases of an operation on one channel. Times are us since the first event of the timeline.
/// Those that were not reached are the begin of the phase before.
struct Phases {
  ccl::LanePhases of;
  double begun_us = 0, ready_us = 0, first_data_us = 0, last_data_us = 0, ended_us = 0;
};

/// Step that a proxy has moved over a network. Times are us since the first event of the
/// timeline.
struct Move {
  ccl::Transfer of;
  double posted_us = 0;  ///< its begin if it is not known
  double begin_us = 0, end_us = 0;
};

/// Operations of a rank of one communicator, in the order of the calls.
struct Row {
  std::string communicator, name, host;
  int ranks = 0;  ///< of the communicator
  int rank = 0, pid = 0;
  std::vector<Slice> slices;
  std::vector<Phases> phases;
  std::vector<Move> moves;

  /// Returns the name of the communicator, or its id if it has none.
  const std::string& label() const { return name.empty() ? communicator : name; }
};

/// Returns the nanoseconds by which the clock of each host is ahead of that of the first host. Only
/// hosts that have operations are there.
///
/// All ranks end a collective at nearly the same time, so the median difference of the ends of
/// common collectives is the first guess. Steps over a network that both ends have noted, in both
/// directions, are better: none arrives before it was sent, and the fastest take equally long.
std::map<std::string, double> clock_shifts(const Records& records);

/// Returns the operations of all records on one time line, by the clock of the first host, in the
/// order of ranks. What has no time is left out.
std::vector<Row> timeline_of(const Records& records);

/// Returns the timeline in the JSON format of Chrome's tracing, which Perfetto reads.
std::string trace_of(const std::vector<Row>& rows);
/// Returns an HTML page that shows a trace of `trace_of`, and `text`, without a network.
std::string page_of(const std::string& trace, const std::string& text);

}  // namespace report
