#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "connect/registry/handle_sockets.hpp"
#include "gpu/imported_range.hpp"

namespace ccl::detail {

/// Memories of other processes that this rank is mapping, handle by handle. It asks the owner for
/// the next handles when it has mapped the last, and again if no answer comes. One thread uses it.
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

  /// Asks for the handles of a memory. Fails if its addresses cannot be reserved.
  Result<void> begin(const Memory& memory);
  /// Ends the mapping of the memory in a slot, if there is one.
  void drop(int owner, int slot) { imports_.erase({owner, slot}); }
  /// Maps handles that have come. Returns the memory if they were the last, or if mapping them
  /// failed.
  std::optional<Ended> take(const HandleSockets::Reply& reply);
  /// Asks owners again that have not answered for a second.
  void ask_again();

 private:
  using Clock = std::chrono::steady_clock;
  struct Import {
    Memory memory;
    std::shared_ptr<ImportedRange> range;
    int mapped = 0;  // handles
    Clock::time_point asked{};
  };
  void ask(Import& import);
  Result<void> append(Import& import, const HandleSockets::Reply& reply);

  std::shared_ptr<Gpu> gpu_;
  const HandleSockets& sockets_;
  std::map<std::pair<int, int>, Import> imports_;  // by owner and slot
};

}  // namespace ccl::detail
