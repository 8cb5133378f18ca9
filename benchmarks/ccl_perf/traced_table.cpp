#include <ccl/choose/candidates.hpp>
#include <ccl/traced.hpp>

#include "wire_runner.hpp"

namespace ccl::perf {

// The generated files instantiate the runners.
#define CCL_PERF_ENTRY(op, algo, proto)                                                 \
  extern template Result<std::unique_ptr<Runner>> make_runner<op, Traced<algo>, proto>( \
      const Communicator&, std::optional<Plan>);
#include "traced_entries.inc"
#undef CCL_PERF_ENTRY

std::span<const TracedEntry> traced_entries() {
#define CCL_PERF_ENTRY(op, algo, proto) \
  TracedEntry{op::name, algo::name, proto::name, &make_runner<op, Traced<algo>, proto>},
  static constexpr TracedEntry entries[] = {
#include "traced_entries.inc"
  };
#undef CCL_PERF_ENTRY
  return entries;
}

}  // namespace ccl::perf
