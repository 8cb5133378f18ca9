// The traced form of one composition, for tests with emulated GPUs. PERF_EMULATED_TRACED=0: none.
#include <ccl/algo/ring.hpp>
#include <ccl/traced.hpp>

#include <cstdlib>
#include <string_view>

#include "wire_runner.hpp"

namespace ccl::perf {

std::span<const TracedEntry> traced_entries() {
  static constexpr TracedEntry entries[] = {
      {AllReduce::name, Ring::name, Simple::name, &make_runner<AllReduce, Traced<Ring>, Simple>}};
  const char* const wanted = std::getenv("PERF_EMULATED_TRACED");
  if (wanted != nullptr && std::string_view{wanted} == "0") return {};
  return entries;
}

}  // namespace ccl::perf
