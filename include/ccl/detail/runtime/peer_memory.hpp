#pragma once

#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

namespace ccl {
struct Edge;
}
namespace ccl::detail {

class Connections;

/// Scratch memory that the ranks of one composition map of each other, and the registry of user
/// buffers that they map on demand. The composition owns it.
class PeerMemory {
 public:
  explicit PeerMemory(Connections& owner) : owner_{owner} {}
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// Maps the scratch of all ranks, two slots of the plan each. Collective; `so_far` is the result
  /// of this rank's preparation.
  Result<void> map(const Result<void>& so_far);
  const PeerView& view() const { return view_; }
  /// Counter of the composition's launches. Exchanges keep their state in the same memory.
  const Epoch& epoch() const { return epoch_; }
  /// True if cuMem allocated the scratch, so that the driver orders no copy behind kernels.
  bool by_cumem() const { return by_cumem_; }

  /// Opens the communicator's registry of user buffers, once. Collective; on a GPU.
  Result<void> open_registry();
  /// Registers this rank's buffer, so that peers begin to map it. Returns the entry in which peers
  /// find it, or 0 if they cannot map it.
  Word remote_buffer(const char* data, Index bytes) const;
  /// Device address of the peers' mapped buffers; null without a registry.
  const Word* registry_table() const;

 private:
  /// Fails if the ranks of the edge cannot address each other's memory, or with too short lines.
  Result<void> can_address(const Edge& edge) const;

  Connections& owner_;
  PeerView view_;
  Epoch epoch_;
  bool by_cumem_ = false;
};

}  // namespace ccl::detail
