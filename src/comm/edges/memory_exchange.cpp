#include "comm/edges/memory_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/io/mapping.hpp"
#include "base/io/os_error.hpp"
#include "base/random.hpp"
#include "comm/edges/edge_handshake.hpp"
#include "transport/edge_error.hpp"
#include "transport/fd_server.hpp"
#include "transport/handshake_fields.hpp"
#include <fcntl.h>

namespace ccl::detail {
namespace {
struct SharedWords {
  Nonce nonce{};
  UnixName name;
};
struct End {
  Nonce nonce{};
  FdOffer offer;
};
}  // namespace

Edge even_edge(const CommState& state, int composition, int peer) {
  Edge edge;
  edge.self = state.identity.peers()[std::size_t(state.identity.rank())];
  edge.peer = state.identity.peers()[std::size_t(peer)];
  edge.side = state.identity.rank() < peer ? EdgeSide::sender : EdgeSide::receiver;
  edge.shape = {1, 2, 128};
  // The higher rank comes first, in the place of the sender of a wire.
  edge.id = edge_id(composition, std::max(peer, state.identity.rank()),
                    std::min(peer, state.identity.rank()));
  return edge;
}

Result<void> share_descriptor(CommState& state, const DescriptorExchange& exchange, const Fd& mine,
                              const Result<void>& so_far) {
  const TransportContext context = transport_context(state, nullptr);
  std::vector<End> ends(std::size_t(state.identity.ranks()));
  std::vector<EdgeHandshake> rendezvous_points;
  for (int p = 0; p < state.identity.ranks(); ++p) {
    if (p == state.identity.rank() || !exchange.with(p)) continue;
    End& end = ends[std::size_t(p)];
    const Edge edge = even_edge(state, exchange.composition, p);
    const auto offer = [&, edge]() -> Result<Handshake> {
      CCL_CHECK(fill_random(&end.nonce, sizeof end.nonce));
      Fd copy{::fcntl(mine.get(), F_DUPFD_CLOEXEC, 0)};
      if (!copy) return fail(os_error(Errc::system, "cannot share a descriptor", errno));
      const unsigned side = unsigned(edge.side == EdgeSide::sender);
      CCL_TRY(end.offer, FdOffer::make(proof_of(context, end.nonce, edge.id, side), edge.shape,
                                       std::move(copy)));
      Handshake said{};
      HandshakeCursor{}.put(said, SharedWords{end.nonce, end.offer.name()});
      return said;
    };
    const auto connect = [&, edge, p](const Handshake& theirs) -> Result<void> {
      const auto said = HandshakeCursor{}.get<SharedWords>(theirs);
      const unsigned side = unsigned(edge.side != EdgeSide::sender);
      CCL_TRY(Fd fd, fetch_fd(context, edge, exchange.what, said.name,
                              proof_of(context, said.nonce, edge.id, side)));
      return exchange.take(p, std::move(fd));
    };
    rendezvous_points.push_back({p, edge.id, offer, connect});
  }
  return swap_handshakes(state, exchange.name, exchange.what, so_far, rendezvous_points);
}

Result<void> share_memory(CommState& state, const MemoryExchange& exchange, const Fd& mine,
                          const Result<void>& so_far) {
  const auto take = [&](int p, const Fd& theirs) -> Result<void> {
    const std::size_t bytes = exchange.bytes_of ? exchange.bytes_of(p) : exchange.bytes;
    if (keeps_size(theirs, bytes)) return exchange.take(p, theirs);
    return fail(edge_error(even_edge(state, exchange.composition, p), exchange.what, Errc::mismatch,
                           fmt::format("rank {} has given rank {} other memory than {} bytes that "
                                       "keep their size; run the same version of ccl on all ranks",
                                       p, state.identity.rank(), bytes)));
  };
  return share_descriptor(state,
                          {exchange.composition, exchange.name, exchange.what, exchange.with, take},
                          mine, so_far);
}

}  // namespace ccl::detail
