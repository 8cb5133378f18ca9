#pragma once

#include <ccl/types/peer_info.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/wire.hpp>

#include <cuda/std/concepts>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace ccl {

namespace detail {
class ProxyEngine;  // moves the bytes of proxied wires
class Status;       // stop flag that all waiting lanes and threads poll
class GpuArena;  // the rank's GPU, and its memory that peers may map
}

/// How far a transport carries.
enum class Reach { process, host, network };

/// What one end of a connection tells the other between `setup` and `connect`.
using Handshake = std::array<std::byte, 256>;

enum class Side { sender, receiver };

/// What the steps of an edge go through, the cheapest wires first. Between CPUs the first two are
/// one.
enum class Through { gpu_memory, host_memory, network };

/// One end of a connection to be made: who, which way, and what shape.
struct Edge {
  PeerInfo self, peer;
  Side side = Side::sender;
  WireShape shape;
  unsigned long long id = 0;  // the same at both ends, unique within the communicator
  bool polls_slots = true;    // by the receiver: packets carry flags, which it looks for there
};

/// What the communicator lends to transports. Outlives every connection made with it.
struct TransportContext {
  detail::ProxyEngine* proxy = nullptr;
  detail::Status* status = nullptr;            // waits end when it says stop
  std::array<std::byte, 16> secret{};  // of the communicator: connections prove it
  double deadline_s = 60;              // of one connect
  detail::GpuArena* arena = nullptr;   // null on a CPU rank
  int local_ranks = 1;                 // on this host, this one included
};

/// One end of a made connection: its wires, one per channel, and what keeps them alive.
struct Connection {
  std::vector<Wire> wires;
  std::shared_ptr<void> owner;
  const char* transport = "";  // name of the transport that carries it
  int line_bytes = 128;        // that land at once; a path of less than its transport says so here
  bool reads = false;          // slots are the sender's memory, which the receiver reads
};

namespace detail {
template <class T>
concept StatesReach = requires {
  { T::name } -> cuda::std::convertible_to<const char*>;
  { T::reach } -> cuda::std::convertible_to<Reach>;
  { T::peer_addressable } -> cuda::std::convertible_to<bool>;
  { T::proxied } -> cuda::std::convertible_to<bool>;
};
template <class T>
concept StatesLineBytes = requires {
  { T::atomic_line_bytes } -> cuda::std::convertible_to<int>;
};
template <class T>
concept ChecksReach = requires(const PeerInfo& a) {
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

/// What a connection is made of and who moves its bytes.
///   can_connect(a, b)  from rank a to rank b, by what they said of themselves; an error says what
///                      is missing. Both ends must come to the same answer.
///   setup(context, edge) -> End, at both ends, which moves; end.handshake() goes to the other end;
///   end.connect(theirs) -> Connection, at both ends, in any order, within the deadline. An end
///   that goes before the other has connected fails the other: ranks meet once more before they
///   let go.
///   atomic_line_bytes  how many bytes, written at once by a group, land at once; LL128 needs 128.
/// Settings that forbid a transport (CCL_SHM_DISABLE ...) are read by `can_connect`.
template <class T>
concept Transport = detail::StatesReach<T> && detail::StatesLineBytes<T> &&
    detail::ChecksReach<T> && detail::SetsUp<T> && detail::EndsMove<T> && detail::Connects<T>;

/// What will carry an edge, known before it is made.
struct Carrier {
  const char* transport = "";
  Through through = Through::gpu_memory;
  int line_bytes = 128;  // that land at once
};

namespace detail {
/// Of an edge that `T` connects; `T::carrier` says it where that depends on the edge.
template <Transport T>
Carrier carrier(const PeerInfo& sender, const PeerInfo& receiver) {
  if constexpr (requires { T::carrier(sender, receiver); }) {
    return T::carrier(sender, receiver);
  } else {
    return {T::name,
            T::proxied            ? Through::network
            : T::peer_addressable ? Through::gpu_memory
                                  : Through::host_memory,
            T::atomic_line_bytes};
  }
}
/// Of `DefaultTransport`; see `connector`.
template <class T>
inline constexpr bool is_default = false;
}  // namespace detail

/// Whether T, or a member of it, lets a rank address its peers' memory. At run time `create` names
/// the edge where that is not so.
template <class T>
inline constexpr bool offers_peer_view = T::peer_addressable;

}  // namespace ccl
