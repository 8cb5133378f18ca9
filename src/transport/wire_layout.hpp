#pragma once

#include <ccl/transport/transport.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/wire.hpp>

#include <cstddef>
#include <vector>

namespace ccl::detail {

/// Layout of a connection's wires in one block of memory. Each channel has a line each for posted,
/// drained, sent and received (their writers differ), the sizes or the short slots, and the slots
/// from a new page on.
class WireLayout {
 public:
  /// Refuses shapes that no wire can have. `slots`: address of all channels' slots, if they are
  /// outside of the block.
  static Result<WireLayout> of(const WireShape& shape, std::byte* slots = nullptr);
  std::size_t bytes() const { return std::size_t(shape_.channels) * channel_bytes_; }
  std::vector<Wire> wires(std::byte* base, EdgeSide side, bool proxied) const;
  /// Words of a channel for `ZeroCopy::Memory::peers`, on the lines of `sent` and `received`.
  struct Lending {
    Word* may_lend = nullptr;    // written by the receiver
    Word* taken_back = nullptr;  // written by the sender
  };
  Lending lending(std::byte* base, int channel) const;

 private:
  WireShape shape_;
  std::byte* slots_ = nullptr;
  int short_slots_ = 0;  // of a wire
  std::size_t head_bytes_ = 0, channel_bytes_ = 0;
};

}  // namespace ccl::detail
