#pragma once

#include <ccl/types/peer_info.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/wire.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ccl {

class ProxyTask;  // transport/proxy_task.hpp
namespace detail {
class ProxyEngine;  // moves the bytes of proxied wires
class Status;       // stop flag that all waiting lanes and threads poll
class GpuArena;     // the rank's GPU, and the memory on it that peers can map
}  // namespace detail

/// Kind of a transport, for the topology's preferences: RDMA networks first, or no peer access
/// between GPUs. A transport may state it as `kind`; without it, it is `other`.
enum class TransportKind { other, p2p, rdma };

/// Largest distance that a transport connects.
enum class Scope { process, host, network };

/// Bytes that one end of a connection sends to the other between `setup` and `connect`.
using Handshake = std::array<std::byte, 256>;

enum class EdgeSide { sender, receiver };

/// Medium of an edge's steps, cheapest wires first. Between CPUs the first two are the same.
enum class Medium { gpu_memory, host_memory, network };

/// NICs of one end of an edge, as the topology chooses them. Empty if it knows none.
struct EdgeNics {
  /// NICs of the rank's machine, as "mlx5_0:1", "mlx5_0+mlx5_1" for several that count as one, or
  /// the name of an interface.
  std::vector<std::string> names{};
  /// Index into `names` for each wire; -1: the transport's choice.
  std::vector<int> of_wire{};
  /// Why a NIC of a wire may not access the memory of the rank's GPU; empty: all of them may.
  std::string no_gpu_access{};
  /// PCI bus id of the GPU next to the NICs in whose memory a sender's slots lie (PXN); -1: the
  /// slots lie with the rank.
  std::int64_t relay = -1;
  /// Distance of each of `names` from the GPU with the slots. NICs that are alike have one number,
  /// and farther ones a larger one. Empty: the topology knows none.
  std::vector<int> distances{};
};

/// One end of a connection to be created: ranks, direction and shape.
struct Edge {
  PeerInfo self, peer;
  EdgeSide side = EdgeSide::sender;
  WireShape shape;
  unsigned long long id = 0;  ///< equal at both ends, unique within the communicator
  bool polls_slots = true;    ///< true: the receiver polls slots, because packets carry flags
  EdgeNics nics{};            ///< of this end
};

/// Resources that the communicator lends to transports. They outlive every connection made with it.
struct TransportContext {
  detail::ProxyEngine* proxy = nullptr;
  detail::Status* status = nullptr;    ///< ends waits when it signals a stop
  std::array<std::byte, 16> secret{};  ///< secret of the communicator; connections prove it
  double deadline_s = 60;              ///< seconds of one connect
  detail::GpuArena* arena = nullptr;   ///< null on a CPU rank
  int local_ranks = 1;                 ///< ranks on this host, this rank included
  int numa = -1;                       ///< NUMA node for the rank's buffers; -1: any
  int traffic_class = -1;              ///< of RDMA packets; -1: that of the settings
  /// Address at which the other ranks have reached this one: "10.0.0.1:0"; empty: none has.
  std::string reached_at{};

  // Functions for transports of a program's own.
  /// Runs `task` in the proxy until the task ends. The first task starts the proxy's thread.
  [[nodiscard]] Result<void> add(std::shared_ptr<ProxyTask> task);
  /// Makes the proxy poll its tasks. Any thread may call it.
  void wake() const;
  /// True if the communicator has failed or was aborted; waits must end then.
  bool failed() const;
  /// Fails the communicator with `error`, unless it has failed already. Any thread may call
  /// it.
  void fail_communicator(Error error) const;
};

/// One end of an established connection: one wire for each channel, and the owner of their memory.
struct Connection {
  std::vector<Wire> wires;
  std::shared_ptr<void> owner;
  const char* transport = "";  ///< name of the transport that carries it
  int line_bytes = 128;        ///< bytes that land at once, if fewer than the transport's
  bool reads = false;  ///< true: slots are in the sender's memory, and the receiver reads them
};

}  // namespace ccl
