#pragma once

#include <ccl/transport/transport.hpp>

namespace ccl {
namespace detail {
/// Succeeds if both ranks can be in one block of multicast memory. An error states the reason. Both
/// ranks must get the same result.
[[nodiscard]] Result<void> can_multicast(MulticastKind kind, const PeerInfo& a, const PeerInfo& b);

/// End of transports that connect no wires. Nothing makes one.
class NoEnd {
 public:
  Handshake handshake() const { return {}; }
  [[nodiscard]] Result<Connection> connect(const Handshake& theirs);

 protected:
  NoEnd() = default;
};
/// Members of transports that make multicast memory of a kind and connect no wires.
template <MulticastKind kind>
struct NoWires {
  static constexpr bool makes_no_wires = true;
  static constexpr Scope scope = Scope::host;
  static constexpr bool peer_addressable = true;
  static constexpr bool proxied = false;
  static constexpr int atomic_line_bytes = 8;  ///< more is not known to land whole

  using End = NoEnd;
  /// Refuses all ranks.
  [[nodiscard]] static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to);
  [[nodiscard]] static Result<End> setup(TransportContext& context, const Edge& edge);

  /// Succeeds if both ranks can be in one block of multicast memory.
  [[nodiscard]] static Result<void> can_join(const PeerInfo& a, const PeerInfo& b) {
    return can_multicast(kind, a, b);
  }
};
}  // namespace detail

/// Multicast memory of the ranks of one host, for `Nvls`. It connects no wires: in a list of
/// transports, others do that. Not run on hardware.
///
/// - Between GPUs, NVSwitches make it: GPUs from sm_90 on, one rank for each. It is off unless
///   CCL_NVLS_ENABLE is 1, because NVSwitches have state that all programs of a machine share.
/// - Between CPU ranks, in threads and processes, it is emulated in shared memory.
struct NvlsTransport : detail::NoWires<MulticastKind::switches> {
  static constexpr const char* name = "nvls";
};
static_assert(Transport<NvlsTransport>);
template <>
inline constexpr MulticastKind multicast_of<NvlsTransport> = MulticastKind::switches;

/// The interface of `NvlsTransport` without switches: lanes load from each rank and store to each.
/// GPUs need access to each other's memory, and nothing else.
struct EmulatedNvlsTransport : detail::NoWires<MulticastKind::emulated> {
  static constexpr const char* name = "nvls_emulated";
};
static_assert(Transport<EmulatedNvlsTransport>);
template <>
inline constexpr MulticastKind multicast_of<EmulatedNvlsTransport> = MulticastKind::emulated;

}  // namespace ccl
