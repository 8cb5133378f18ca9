#pragma once

#include <ccl/comm/report.hpp>
#include <ccl/types/result.hpp>

#include <string>
#include <string_view>

namespace ccl {

/// Operations that one rank of a communicator remembers, as `Communicator::dump` writes them.
struct FlightRecord {
  /// Equal on all ranks of the communicator, and different from its splits; 16 hexadecimal digits.
  std::string communicator;
  std::string name;     ///< `Config::name`
  int ranks = 0;        ///< size of the communicator
  std::string failure;  ///< message of the error that ended it; empty: it has not failed
  RankStatus status;    ///< with all operations of the flight recorder
};

/// Returns the record in a file that `Communicator::dump` wrote as JSON. `Errc::invalid_argument`:
/// the text is no such file; the error names the member that is wrong.
Result<FlightRecord> read_flight_record(std::string_view json);

}  // namespace ccl
