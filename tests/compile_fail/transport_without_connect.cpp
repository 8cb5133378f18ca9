// expect: ccl: the fourth argument of Collective must be a transport (a model of Transport); the compiler's notes name the missing member
#include <ccl/ccl.hpp>

struct Pigeons {
  static constexpr const char* name = "pigeons";
  static constexpr ccl::Scope scope = ccl::Scope::network;
  static constexpr bool peer_addressable = false, proxied = true;
  static constexpr int atomic_line_bytes = 128;
  struct End {
    ccl::Handshake handshake() const;
  };
  static ccl::Result<void> can_connect(const ccl::PeerInfo&, const ccl::PeerInfo&);
  static ccl::Result<End> setup(ccl::TransportContext&, const ccl::Edge&);
};
using Bad = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::Simple, Pigeons>;
static_assert(sizeof(Bad) > 0);
