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

/// Kind of a transport, for the topology's preferences: RDMA networks first, or no peer access
/// between GPUs. A transport may state it as `kind`; without it, it is `other`.
enum class TransportKind { other, p2p, rdma };

/// How far a transport carries.
enum class Scope { process, host, network };

/// What one end of a connection tells the other between `setup` and `connect`.
using Handshake = std::array<std::byte, 256>;

enum class EdgeSide { sender, receiver };

/// What the steps of an edge go through, the cheapest wires first. Between CPUs the first two are
/// one.
enum class Medium { gpu_memory, host_memory, network };

/// One end of a connection to be made: who, which way, and what shape.
struct Edge {
  PeerInfo self, peer;
  EdgeSide side = EdgeSide::sender;
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
concept Transport = detail::StatesScope<T> && detail::StatesLineBytes<T> &&
    detail::ChecksScope<T> && detail::SetsUp<T> && detail::EndsMove<T> && detail::Connects<T>;

/// What will carry an edge, known before it is made.
struct EdgeTransport {
  const char* transport = "";
  Medium through = Medium::gpu_memory;
  int line_bytes = 128;  // that land at once
};

namespace detail {
/// Of an edge that `T` connects; `T::edge_transport` says it where that depends on the edge.
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
/// Of `DefaultTransport`; see `transport_table`.
template <class T>
inline constexpr bool is_default = false;
}  // namespace detail

/// Whether T, or a member of it, lets a rank address its peers' memory. At run time `create` names
/// the edge where that is not so.
template <class T>
inline constexpr bool offers_peer_view = T::peer_addressable;

}  // namespace ccl
