#pragma once

#include <ccl/comm/flight_record.hpp>

#include <nlohmann/json_fwd.hpp>

namespace ccl::detail {

/// Returns all members of the record, as `read_flight_record` reads them.
nlohmann::ordered_json record_json(const FlightRecord& record);

}  // namespace ccl::detail
