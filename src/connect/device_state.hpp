#pragma once

#include <ccl/detail/runtime/connections.hpp>

#include "connect/stream_signals.hpp"
#include "gpu/memory.hpp"
#include "gpu/pinned.hpp"

namespace ccl::detail {

/// Second stream of one composition's launches. Its work runs beside the first stream's, from a
/// fork to a join.
struct SideBranch {
  std::shared_ptr<Gpu> gpu;
  CUstream stream = nullptr;
  CUevent forked = nullptr, joined = nullptr;

  static Result<std::unique_ptr<SideBranch>> make(std::shared_ptr<Gpu> gpu);
  /// True if the stream is in no capture, or in that of this number. It stays in a capture until
  /// the user ends that, also after a join.
  Result<bool> is_usable(cuuint64_t capture) const;
  explicit SideBranch(std::shared_ptr<Gpu> of) : gpu{std::move(of)} {}
  ~SideBranch();
  SideBranch(const SideBranch&) = delete;
  SideBranch& operator=(const SideBranch&) = delete;
};

/// Resources of one composition on a GPU. They outlive its launches.
struct DeviceState {
  GpuArena arena;
  GpuBlock tables{};
  std::size_t table_bytes = 0;  // of the wires' tables
  std::vector<GpuBlock> former_tables{};
  std::vector<Connection> connections{};
  Pinned phases{};           // two `PhaseLog`s of kernels; empty: they note none
  bool holds_slots = false;  // slots of some wires lie in this GPU's memory
  std::vector<std::unique_ptr<SideBranch>> sides{};  // of `CopyEngine`; one for each capture
  std::unique_ptr<StreamSignals> signals{};          // flags of `StreamCopies::signal`
};

}  // namespace ccl::detail
