#include <ccl/detail/runtime/settings.hpp>
#include <ccl/transport/nvls.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "settings/report.hpp"
#include "topo/graph/p2p_path.hpp"
#include "transport/edge_error.hpp"
#include "transport/fd_server.hpp"

namespace ccl::detail {
namespace {

/// Compute capability of the first GPUs whose NVSwitches reduce.
constexpr int first_with_multicast = 90;

auto refuse_pair(const PeerInfo& a, const PeerInfo& b, std::string_view why) {
  const auto& [low, high] =
      std::minmax(a, b, [](const PeerInfo& x, const PeerInfo& y) { return x.rank < y.rank; });
  return fail(Errc::no_transport,
              fmt::format("rank {} and rank {} cannot share multicast memory ({})", low.rank,
                          high.rank, why));
}

Result<void> can_share_host_memory(const PeerInfo& a, const PeerInfo& b) {
  if (a.pid_hash == b.pid_hash) return {};
  CCL_TRY(const bool disabled, setting_flag("SHM_DISABLE"));
  if (disabled) {
    return refuse_pair(a, b,
                       fmt::format("{} is 1; Ring or Tree would", variable_of("SHM_DISABLE")));
  }
  if (const auto why = no_common_memory(a, b); !why.empty()) return refuse_pair(a, b, why);
  return {};
}

}  // namespace

Result<void> can_multicast(MulticastKind kind, const PeerInfo& a, const PeerInfo& b) {
  if (a.host_hash != b.host_hash) {
    return refuse_pair(a, b, "they are on different hosts; Hierarchical<Nvls, Tree> would");
  }
  if (a.device < 0 || b.device < 0) return can_share_host_memory(a, b);
  if (kind == MulticastKind::emulated) {
    return a.rank < b.rank ? P2pTransport::can_address(a, b) : P2pTransport::can_address(b, a);
  }
  for (const PeerInfo& of : {a, b}) {
    if (of.compute_capability >= first_with_multicast) continue;
    return refuse_pair(
        a, b,
        fmt::format("the GPU of rank {} is of sm_{}, and multicast takes sm_{}; TwoShot would",
                    of.rank, of.compute_capability, first_with_multicast));
  }
  if (same_gpu(a, b)) return refuse_pair(a, b, "they share a GPU; give each rank one of its own");
  return {};
}

template <MulticastKind kind>
Result<void> NoWires<kind>::can_connect(const PeerInfo& from, const PeerInfo& to) {
  return fail(Errc::no_transport,
              fmt::format("nvls does not connect rank {} to rank {} (it makes multicast memory and "
                          "no wires); p2p, shm or socket would",
                          from.rank, to.rank));
}

template <MulticastKind kind>
Result<NoEnd> NoWires<kind>::setup(TransportContext&, const Edge& edge) {
  auto refused = can_connect(edge.self, edge.peer);
  return fail(edge_error(edge, "nvls", Errc::no_transport, std::move(refused).error().what));
}

Result<Connection> NoEnd::connect(const Handshake&) {
  return fail(Errc::internal, "an end that connects no wires was used");
}

template struct NoWires<MulticastKind::switches>;
template struct NoWires<MulticastKind::emulated>;

}  // namespace ccl::detail
