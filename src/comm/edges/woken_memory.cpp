#include "comm/edges/woken_memory.hpp"

#include "base/field_check.hpp"

namespace ccl::detail {

std::string wrong_woken_memory(const WokenMemory& said) {
  return FieldCheck{}
      .in_range("kind of handle", said.name.handles, 1, 2)
      .in_range("owner", said.name.borrowed, 0, 0)
      .why();
}

}  // namespace ccl::detail
