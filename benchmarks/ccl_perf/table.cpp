#include "entry_facts.hpp"

namespace ccl::perf {

// The generated files instantiate the runners.
#define CCL_PERF_ENTRY(op, algo, proto)                                         \
  extern template Result<std::unique_ptr<Runner>> make_runner<op, algo, proto>( \
      const Communicator&, std::optional<Plan>);
#include "entries.inc"
#undef CCL_PERF_ENTRY

std::span<const Entry> all_entries() {
#define CCL_PERF_ENTRY(op, algo, proto)                                   \
  Entry{op::name, algo::name, proto::name, &make_runner<op, algo, proto>, \
        &entry_facts<op, algo, proto>},
  static constexpr Entry entries[] = {
#include "entries.inc"
  };
#undef CCL_PERF_ENTRY
  return entries;
}

bool carries(DataType type, RedOp redop) {
  return with_type(type, [&]<class T>(TypeTag<T>) {
    return with_redop(redop, [](auto op) { return carried<T, decltype(op)>(); });
  });
}

}  // namespace ccl::perf
