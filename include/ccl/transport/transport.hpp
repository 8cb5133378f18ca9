#pragma once

#include <ccl/types/connection.hpp>

#include <cuda/std/concepts>

namespace ccl {

namespace detail {
template <class T>
concept StatesScope = requires {
  { T::name } -> cuda::std::convertible_to<const char*>;
  { T::scope } -> cuda::std::convertible_to<Scope>;
  { T::peer_addressable } -> cuda::std::convertible_to<bool>;
  { T::proxied } -> cuda::std::convertible_to<bool>;
};
template <class T>
constexpr TransportKind kind_of() {
  if constexpr (requires { T::kind; }) {
    return T::kind;
  } else {
    return TransportKind::other;
  }
}
template <class T>
concept StatesLineBytes = requires {
  { T::atomic_line_bytes } -> cuda::std::convertible_to<int>;
};
template <class T>
concept ChecksScope = requires(const PeerInfo& a) {
  { T::can_connect(a, a) } -> cuda::std::same_as<Result<void>>;
};
template <class T>
concept SetsUp = requires(TransportContext& context, const Edge& edge) {
  { T::setup(context, edge) } -> cuda::std::same_as<Result<typename T::End>>;
};
template <class T>
concept EndsMove = cuda::std::move_constructible<typename T::End>;
template <class T>
concept Connects = requires(typename T::End& end, const Handshake& theirs) {
  { end.handshake() } -> cuda::std::same_as<Handshake>;
  { end.connect(theirs) } -> cuda::std::same_as<Result<Connection>>;
};
}  // namespace detail

/// Policy that connects two ranks and decides who moves the bytes.
/// - `can_connect(a, b)`: from rank a to rank b, by their descriptions. An error states the reason.
///   Both ends must get the same result.
/// - `setup(context, edge)`: returns an `End`, which can be moved; called at both ends.
/// - `end.handshake()`: returns the bytes for the other end.
/// - `end.connect(theirs)`: returns a `Connection`; called at both ends, in any order, within the
///   deadline. An end must live until the other has connected, so ranks synchronize once more
///   before they destroy ends.
/// - `atomic_line_bytes`: bytes that land at once if a group writes them at once. LL128 needs 128.
/// `can_connect` reads the settings that forbid a transport, such as CCL_SHM_DISABLE.
template <class T>
concept Transport =
    detail::StatesScope<T> && detail::StatesLineBytes<T> && detail::ChecksScope<T> &&
    detail::SetsUp<T> && detail::EndsMove<T> && detail::Connects<T>;

/// Transport that will carry an edge, known before the connection exists.
struct EdgeTransport {
  const char* transport = "";
  Medium medium = Medium::gpu_memory;
  int line_bytes = 128;  ///< bytes that land at once
};

namespace detail {
/// Returns the edge transport of an edge that `T` connects. `T` defines a function of its own if
/// the result depends on the edge.
template <Transport T>
EdgeTransport edge_transport(const PeerInfo& sender, const PeerInfo& receiver) {
  if constexpr (requires { T::edge_transport(sender, receiver); }) {
    return T::edge_transport(sender, receiver);
  } else {
    return {T::name,
            T::proxied            ? Medium::network
            : T::peer_addressable ? Medium::gpu_memory
                                  : Medium::host_memory,
            T::atomic_line_bytes};
  }
}
/// True for `DefaultTransport`; see `transport_table`.
template <class T>
inline constexpr bool is_default = false;
}  // namespace detail

/// True for transports that map peers' memory for algorithms that address it: `P2pTransport`, and
/// lists that contain it. Such an algorithm would ignore any other transport. At run time `create`
/// fails and names an edge over which the memory cannot be addressed.
template <class T>
inline constexpr bool offers_peer_view = false;
/// True for transports over which algorithms may use a network that reduces: `CollNetTransport`,
/// `DefaultTransport`, and lists that contain the former.
template <class T>
inline constexpr bool offers_network = false;

/// Ways in which a transport makes memory of all ranks that one access reaches.
enum class MulticastKind {
  none,
  switches,  ///< NVSwitches between GPUs; emulated between CPU ranks
  emulated   ///< a load from each rank and a store to each
};
/// Multicast memory that a transport makes for algorithms that need it, such as `Nvls`.
template <class T>
inline constexpr MulticastKind multicast_of = MulticastKind::none;

namespace detail {
/// True for transports that make multicast memory and connect no wires.
template <class T>
inline constexpr bool makes_no_wires = requires { requires T::makes_no_wires; };
}  // namespace detail

}  // namespace ccl
