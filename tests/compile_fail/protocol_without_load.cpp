// expect: ccl: the third argument of Collective must be a protocol (Simple, LL, LL128, or a model of Protocol); the compiler's notes name the missing member
#include <ccl/ccl.hpp>

struct Blind {
  static constexpr const char* name = "Blind";
  static constexpr bool carries_flags = true;
  static constexpr int batch = 1, line_bytes = 8;
  template <ccl::LaneGroup Group>
  struct Lane {
    static constexpr int words = 1, stride = 1, tile_words = 1, tile_packets = 1;
    using Fragment = ccl::Fragment<1>;
    void store(ccl::Packet*, Fragment, ccl::Word) const;
  };
};
using Bad = ccl::Collective<ccl::AllReduce, ccl::Ring, Blind, ccl::ShmTransport>;
static_assert(sizeof(Bad) > 0);
