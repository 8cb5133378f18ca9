// expect: P::name
#include <ccl/ccl.hpp>

// The sentence is that of protocol_without_load.cpp; this is the note that names what is missing.
struct Nameless {
  static constexpr bool carries_flags = false;
  static constexpr int batch = 1, line_bytes = 8;
  static constexpr ccl::Index default_slot_bytes = 4096;
  template <ccl::LaneGroup Group, int W = 1>
  using Lane = ccl::Simple::Lane<Group, W>;
};
using Bad = ccl::Collective<ccl::AllReduce, ccl::Ring, Nameless, ccl::ShmTransport>;
static_assert(sizeof(Bad) > 0);
