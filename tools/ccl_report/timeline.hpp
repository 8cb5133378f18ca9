#pragma once

#include <ccl/comm/flight_record.hpp>

#include <map>
#include <string>
#include <vector>

namespace report {

using Records = std::map<std::string, std::vector<ccl::FlightRecord>>;  // by communicator

/// Operation of a rank. Times are us since the first operation of the timeline.
struct Slice {
  ccl::Operation operation;
  double queued_us = 0;
  double started_us = -1;  ///< -1: it has not begun
  double ended_us = 0;     ///< end, or the time of the record if it has not ended
};

/// Phases of an operation on one channel. Times are us since the first operation of the timeline.
/// Those that were not reached are the begin of the phase before.
struct Phases {
  ccl::LanePhases of;
  double begun_us = 0, ready_us = 0, first_data_us = 0, last_data_us = 0, ended_us = 0;
};

/// Operations of a rank of one communicator, in the order of the calls.
struct Row {
  std::string communicator, name, host;
  int rank = 0, pid = 0;
  std::vector<Slice> slices;
  std::vector<Phases> phases;
};

/// Operations of all records on one time line. The clock of each host is shifted by the median
/// difference of the ends of common collectives, because all ranks end a collective at nearly the
/// same time.
std::vector<Row> timeline_of(const Records& records);

/// Returns the timeline in the JSON format of Chrome's tracing, which Perfetto reads.
std::string trace_of(const std::vector<Row>& rows);
/// Returns an HTML page that shows the timeline and `text` without a network.
std::string page_of(const std::vector<Row>& rows, const std::string& text);

}  // namespace report
