#pragma once

#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/transport/any_end.hpp>
#include <ccl/transport/ib.hpp>
#include <ccl/transport/loopback.hpp>
#include <ccl/transport/p2p.hpp>
#include <ccl/transport/plugin.hpp>
#include <ccl/transport/shm.hpp>
#include <ccl/transport/socket.hpp>
#include <ccl/transport/transport.hpp>

#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace ccl {
namespace detail {
/// Fails with `Errc::no_transport` and the reason if CCL_TRANSPORT excludes the transport `name`.
[[nodiscard]] Result<void> may_choose(const char* name);
}  // namespace detail

/// Transport that selects one of `Ts` for each edge at run time: the first that connects it.
/// CCL_TRANSPORT narrows the choice, and the topology can prefer a later one. At compile time it
/// offers only the properties that all members have.
template <class... Ts>
struct AnyOf {
  static_assert(sizeof...(Ts) >= 1, "ccl: AnyOf needs at least one transport");
  static_assert((Transport<Ts> && ...),
                "ccl: AnyOf lists transports (models of Transport), such as ShmTransport; the "
                "compiler's notes name the missing member");
  static constexpr const char* name = "any";
  static constexpr Scope scope = [] {
    Scope widest = Scope{};
    ((widest = Ts::scope > widest ? Ts::scope : widest), ...);
    return widest;
  }();
  static constexpr bool peer_addressable = (Ts::peer_addressable && ...);
  static constexpr bool proxied = (Ts::proxied || ...);
  static constexpr int atomic_line_bytes = [] {
    int least = std::numeric_limits<int>::max();
    ((least = int(Ts::atomic_line_bytes) < least ? int(Ts::atomic_line_bytes) : least), ...);
    return least;
  }();

  /// One end of the selected transport.
  class End {
   public:
    Handshake handshake() const { return end_->handshake(); }
    [[nodiscard]] Result<Connection> connect(const Handshake& theirs) {
      return end_->connect(theirs);
    }

   private:
    friend struct AnyOf;
    explicit End(std::unique_ptr<detail::AnyEnd> end) : end_{std::move(end)} {}
    std::unique_ptr<detail::AnyEnd> end_;
  };

  /// Returns an error that lists each member's reason if no member connects the ranks.
  [[nodiscard]] static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to) {
    std::string reasons;
    Error last;
    const auto connects = [&](Result<void> answer) {
      if (answer) return true;
      last = std::move(answer).error();
      reasons += (reasons.empty() ? "" : "; ") + last.what;
      return false;
    };
    if ((connects(offers<Ts>(from, to)) || ...)) return {};
    if constexpr (sizeof...(Ts) > 1) {
      last.what = "no transport connects rank " + std::to_string(from.rank) + " to rank " +
                  std::to_string(to.rank) + " (" + reasons + ")";
    }
    last.code = Errc::no_transport;
    return fail(std::move(last));
  }

  /// Returns the edge transport of the member that will connect the ranks, or of the last member if
  /// none does.
  static EdgeTransport edge_transport(const PeerInfo& from, const PeerInfo& to) {
    EdgeTransport found;
    const int wanted = choose(from, to);
    int n = 0;
    const auto accepts = [&](const EdgeTransport& by) {
      found = by;
      return n++ == wanted;
    };
    (void)(accepts(detail::edge_transport<Ts>(from, to)) || ...);
    return found;
  }

  /// Creates one end of the selected member. Both ends select the same member, because both test
  /// `Ts` in order, with the sender first.
  [[nodiscard]] static Result<End> setup(TransportContext& context, const Edge& edge) {
    const bool sends = edge.side == EdgeSide::sender;
    const PeerInfo& from = sends ? edge.self : edge.peer;
    const PeerInfo& to = sends ? edge.peer : edge.self;
    const int wanted = choose(from, to);
    if (wanted >= 0) return set_up<0, Ts...>(wanted, context, edge);
    auto refused = can_connect(from, to);
    if (refused) return fail(Errc::internal, "a transport changed its mind");
    Error error = std::move(refused).error();
    error.rank = edge.self.rank;
    error.peer = edge.peer.rank;
    error.host = edge.self.host;
    return fail(std::move(error));
  }

 private:
  template <class T>
  [[nodiscard]] static Result<void> offers(const PeerInfo& from, const PeerInfo& to) {
    static_cast<void>(&detail::known_transport<T>);
    CCL_CHECK(detail::may_choose(T::name));
    return T::can_connect(from, to);
  }
  /// Returns the index of the member that will connect the ranks, or -1. It is the first that does,
  /// unless the topology of the path prefers another.
  static int choose(const PeerInfo& from, const PeerInfo& to) {
    const bool rdma = from.way.prefer_rdma != 0 || to.way.prefer_rdma != 0;
    const bool far = from.way.avoid_p2p != 0 || to.way.avoid_p2p != 0;
    const auto first = [&](auto suits) {
      int n = 0, found = -1;
      ((found < 0 && suits(detail::kind_of<Ts>()) && offers<Ts>(from, to) ? void(found = n)
                                                                          : void(),
        ++n),
       ...);
      return found;
    };
    int found = -1;
    if (rdma) found = first([](TransportKind kind) { return kind == TransportKind::rdma; });
    if (found < 0 && far) {
      found = first([](TransportKind kind) { return kind != TransportKind::p2p; });
    }
    if (found < 0) found = first([](TransportKind) { return true; });
    return found;
  }
  template <std::size_t N, class T, class... Rest>
  [[nodiscard]] static Result<End> set_up(int wanted, TransportContext& context, const Edge& edge) {
    if constexpr (sizeof...(Rest) > 0) {
      if (wanted != int(N)) return set_up<N + 1, Rest...>(wanted, context, edge);
    }
    CCL_TRY(auto end, T::setup(context, edge));
    return End{std::make_unique<detail::EndOf<typename T::End>>(std::move(end))};
  }
};

template <class... Ts>
inline constexpr bool offers_peer_view<AnyOf<Ts...>> = (offers_peer_view<Ts> || ...);
template <class... Ts>
inline constexpr bool offers_network<AnyOf<Ts...>> = (offers_network<Ts> || ...);
/// The first member that makes multicast memory makes it.
template <class... Ts>
inline constexpr MulticastKind multicast_of<AnyOf<Ts...>> = [] {
  MulticastKind found = MulticastKind::none;
  ((found = found == MulticastKind::none ? multicast_of<Ts> : found), ...);
  return found;
}();

/// Transport that connects any two ranks.
using DefaultTransport = AnyOf<P2pTransport, LoopbackTransport, ShmTransport, IbTransport,
                               PluginTransport, SocketTransport>;
static_assert(Transport<DefaultTransport>);

/// Algorithms that ask for multicast memory get that of `NvlsTransport`.
template <>
inline constexpr MulticastKind multicast_of<DefaultTransport> = MulticastKind::switches;

template <>
inline constexpr bool detail::is_default<DefaultTransport> = true;
template <>
inline constexpr bool offers_network<DefaultTransport> = true;

}  // namespace ccl
