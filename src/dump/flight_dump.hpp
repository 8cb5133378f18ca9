#pragma once

#include <ccl/comm/flight_record.hpp>

#include <string>

namespace ccl::detail {

/// Returns the record as JSON: the members of PyTorch's flight recorder, and "ccl" with all that
/// `read_flight_record` reads.
std::string json_of(const FlightRecord& record);
/// Returns the record as PyTorch's flight recorder writes it: a pickled dictionary. Groups of sends
/// and receives are left out, because ccl does not record their peers.
std::string pickle_of(const FlightRecord& record);

/// Paths that `write_flight_record` writes.
std::string json_path(const FlightRecord& record, const std::string& folder);
std::string pickle_path(const FlightRecord& record, const std::string& folder);
/// Writes both files of the record. Each replaces an older one at once. `Errc::system`: the folder
/// does not exist or cannot be written.
Result<void> write_flight_record(const FlightRecord& record, const std::string& folder);

}  // namespace ccl::detail
