#pragma once

#include <cstddef>
#include <vector>

#include "comm/state.hpp"
#include "connect/registry/registry_board.hpp"
#include "gpu/allocation.hpp"

namespace ccl::detail {

/// Memory around a buffer of the user, as peers map it: an allocation of `cudaMalloc`, adjacent
/// mappings of cuMem handles, or a window.
struct BufferRange {
  using Kind = RegistryBoard::Kind;
  /// Maximum handles of a range: each is a descriptor that travels. PyTorch's have 20 MiB.
  static constexpr std::size_t max_mappings = 4096;
  Kind kind = Kind::legacy;
  Word base = 0, bytes = 0;  // 0 bytes: peers cannot map it
  Word window = 0;           // its number, if it is a window
  /// Its cuMem handles; of `cudaMalloc` one, the whole allocation; of a window none.
  std::vector<HandleMapping> mappings{};

  Word end() const { return base + bytes; }
  /// True if other processes can import all of its handles.
  bool can_export() const;
  /// True if `other` is a part of it.
  bool contains(const BufferRange& other) const;
  /// True if its memory has been freed, because `other` is at the same address.
  bool replaced_by(const BufferRange& other) const;
};

/// Processes of the ranks that would map a range.
struct RangeReaders {
  bool here = false;       // this one
  bool elsewhere = false;  // others
};
/// Returns the range around a buffer, which is empty if readers could not map it. `windows_only`:
/// a window, or nothing.
BufferRange range_around(CommState& state, const char* data, Index bytes,
                         const RangeReaders& readers, bool windows_only);
/// True if the program has not freed the memory of the range since.
bool lives(CommState& state, const BufferRange& range);

}  // namespace ccl::detail
