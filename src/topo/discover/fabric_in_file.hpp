#pragma once

#include <ccl/types/result.hpp>

#include <cstdint>
#include <string>

namespace ccl::topo {

/// Returns the attribute `fabric` ("cluster:clique") of the GPU in the file of CCL_TOPO_FILE;
/// empty: there is none.
Result<std::string> fabric_in_file(std::int64_t bus_id);

}  // namespace ccl::topo
