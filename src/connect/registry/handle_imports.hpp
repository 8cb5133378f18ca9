#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "connect/registry/handle_sockets.hpp"
#include "gpu/imported_range.hpp"

namespace ccl::detail {

/// Memories of other processes that this rank is mapping, handle by handle. It asks an owner for
/// the handles of a few memories at a time, for the next ones when it has mapped the last, and
/// again if no answer comes. One thread uses it.
class HandleImports {
 public:
  HandleImports(std::shared_ptr<Gpu> gpu, const HandleSockets& sockets)
      : gpu_{std::move(gpu)}, sockets_{sockets} {}

  /// Memory of a peer: `id` of its board, in a slot.
  struct Memory {
    int owner = 0;
    int slot = 0;
    Word id = 0;
    std::size_t bytes = 0;
    int handles = 0;
  };
  /// A memory that is mapped or, with null, cannot be.
  struct Ended {
    Memory memory;
    std::shared_ptr<ImportedRange> range;
  };

  /// Begins to map a memory. Fails if its addresses cannot be reserved.
  Result<void> begin(const Memory& memory);
  /// Ends the mapping of the memory in a slot, if there is one.
  void drop(int owner, int slot) { imports_.erase({owner, slot}); }
  /// Maps handles that have come. Returns the memory if they were the last, if mapping them failed,
  /// or if its owner could not export them several times.
  std::optional<Ended> take(const HandleSockets::Reply& reply);
  /// Asks for the next handles, and calls `asked(owner)` for each owner that has a request.
  template <class Asked>
  void ask(Asked asked) {
    for (auto& [where, import] : imports_) {
      if (may_ask(import) && request(import)) asked(import.memory.owner);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Import {
    Memory memory;
    std::shared_ptr<ImportedRange> range;
    int mapped = 0;             // handles
    int refusals = 0;           // of the owner
    Clock::time_point asked{};  // when this rank asked for the next ones; 0: it has not
  };
  bool may_ask(const Import& import) const;
  bool request(Import& import);
  Result<void> append(Import& import, const HandleSockets::Reply& reply);

  std::shared_ptr<Gpu> gpu_;
  const HandleSockets& sockets_;
  std::map<std::pair<int, int>, Import> imports_;  // by owner and slot
};

}  // namespace ccl::detail
