#include "connect/registry/buffer_range.hpp"

#include <ccl/detail/exchange/mailbox.hpp>

#include <algorithm>

#include "comm/edges/window_state.hpp"
#include "gpu/gpu.hpp"
#include "gpu/shared_handle.hpp"

namespace ccl::detail {
namespace {

/// Minimum size of a mapped allocation. A handle names one of the driver's own allocations, which
/// may hold several smaller ones.
constexpr Word smallest = Word{2} << 20;

/// Range of the allocation of `cudaMalloc`; empty if it has no handle of its own.
BufferRange legacy_range(const Allocation& whole, Word end) {
  if (whole.bytes < smallest || whole.begin % 256 != 0 || end > whole.end()) return {};
  BufferRange range{BufferRange::Kind::legacy, whole.begin, whole.bytes};
  range.mappings.push_back({{whole.begin, whole.bytes}, whole.id});
  return range;
}

/// Range of cuMem handles. An allocation is the reserved range, and may grow and shrink by
/// handles. So the range is of those handles alone that the buffer has.
BufferRange handles_range(const Gpu& gpu, Word at, Word bytes, const RangeReaders& readers) {
  BufferRange range{BufferRange::Kind::handles};
  range.mappings =
      mappings_around(gpu.driver(), gpu.device(), CUdeviceptr(at), bytes, range.max_mappings);
  if (range.mappings.empty()) return {};
  range.base = range.mappings.front().range.begin;
  range.bytes = range.mappings.back().range.end() - range.base;
  const bool fits = range.bytes >= smallest && range.base % 256 == 0 &&
                    (readers.here || (readers.elsewhere && range.can_export()));
  return fits ? range : BufferRange{};
}

}  // namespace

bool BufferRange::can_export() const {
  return std::ranges::all_of(mappings, &detail::can_export);
}

bool BufferRange::contains(const BufferRange& other) const {
  if (other.kind != kind || other.window != window || other.base < base || other.end() > end()) {
    return false;
  }
  const auto first = std::ranges::find(mappings, other.base,
                                       [](const HandleMapping& m) { return Word(m.range.begin); });
  return std::size_t(mappings.end() - first) >= other.mappings.size() &&
         std::equal(other.mappings.begin(), other.mappings.end(), first,
                    [](const HandleMapping& a, const HandleMapping& b) { return a.id == b.id; });
}

bool BufferRange::replaced_by(const BufferRange& other) const {
  return other.base == base && !mappings.empty() && !other.mappings.empty() &&
         other.mappings.front().id != mappings.front().id;
}

BufferRange range_around(CommState& state, const char* data, Index bytes,
                         const RangeReaders& readers, bool windows_only) {
  const Gpu& gpu = *state.device.gpu;
  const Word at = reinterpret_cast<Word>(data);
  const Allocation whole = allocation_around(gpu.driver(), CUdeviceptr(at));
  const bool own = !windows_only && whole.device == gpu.device();
  if (own && whole.legacy) {
    if (BufferRange range = legacy_range(whole, at + Word(bytes)); range.bytes > 0) return range;
  }
  const WindowFacts window = window_around(state, data, bytes);
  if (window.number != 0) {
    const Word base = reinterpret_cast<Word>(window.base);
    if (base % 256 != 0) return {};
    return {BufferRange::Kind::window, base, Word(window.bytes), window.number};
  }
  return own && !whole.legacy ? handles_range(gpu, at, Word(bytes), readers) : BufferRange{};
}

bool lives(CommState& state, const BufferRange& range) {
  if (range.kind == BufferRange::Kind::window) {
    return window_mapping(state, range.window, state.identity.rank()).holds != nullptr;
  }
  const CudaDriver& cuda = state.device.gpu->driver();
  return std::ranges::all_of(range.mappings, [&](const HandleMapping& mapping) {
    return allocation_around(cuda, mapping.range.begin).id == mapping.id;
  });
}

}  // namespace ccl::detail
