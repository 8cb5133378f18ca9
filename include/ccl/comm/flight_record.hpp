#pragma once

#include <ccl/comm/report.hpp>
#include <ccl/types/result.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace ccl {

/// Times at which the phases of an operation began on one channel, of lanes that note them: see
/// `Traced` and CCL_TRACE_PHASES. Nanoseconds since 1970, as in `Operation`. 0: not reached.
struct LanePhases {
  Word number = 0;       ///< `Operation::number`
  int composition = -1;  ///< `Operation::composition`
  Word call = 0;         ///< `Operation::call`
  int channel = 0;
  Word begun_ns = 0;       ///< the lanes run
  Word ready_ns = 0;       ///< the launch before has ended
  Word first_data_ns = 0;  ///< the first data that came is used
  Word last_data_ns = 0;   ///< the last data that came is used
  Word ended_ns = 0;
};

/// Step of a wire, or a stream's piece of it, that a rank's proxy has moved over a network: see
/// CCL_TRACE_TRANSFERS. Both ends note it. Nanoseconds since 1970. 0: not known.
struct Transfer {
  bool sends = false;  ///< true: to `peer`; false: from it
  int peer = -1;
  int composition = -1;  ///< `Operation::composition`
  int channel = 0;
  int stream = 0;       ///< of a channel with several sockets
  Word step = 0;        ///< counted for each channel, equally at both ends
  Word bytes = 0;       ///< without headers
  Word posted_ns = 0;   ///< sender: the proxy has found the step that the lanes posted
  Word begin_ns = 0;    ///< the first bytes were given to the network, or have come from it
  Word end_ns = 0;      ///< all bytes: given to the socket, acknowledged by the NIC, or received
  std::string network;  ///< interface, or NIC and port: "eth0", "mlx5_0:1", "mlx5_0:1+mlx5_1:1"
};

/// Operations that one rank of a communicator remembers, as `Communicator::dump` writes them.
struct FlightRecord {
  /// Equal on all ranks of the communicator, and different from its splits; 16 hexadecimal digits.
  std::string communicator;
  std::string name;     ///< `Config::name`
  int ranks = 0;        ///< size of the communicator
  std::string failure;  ///< message of the error that ended it; empty: it has not failed
  RankStatus status;    ///< with all operations of the flight recorder
  /// Oldest first, of the latest 64 launches of each composition whose lanes note times.
  std::vector<LanePhases> phases;
  /// Nanoseconds added to the clock of the lanes in `phases`; a GPU's is %globaltimer. 0: no
  /// phases.
  long long lane_clock_ns = 0;
  /// Oldest first, the latest ones. Empty without CCL_TRACE_TRANSFERS.
  std::vector<Transfer> transfers;
};

/// Returns the record in a file that `Communicator::dump` wrote as JSON. `Errc::invalid_argument`:
/// the text is no such file; the error names the member that is wrong.
[[nodiscard]] Result<FlightRecord> read_flight_record(std::string_view json);

}  // namespace ccl
