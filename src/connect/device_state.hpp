#pragma once

#include <ccl/detail/runtime/connections.hpp>

#include "connect/stream_signals.hpp"
#include "gpu/memory.hpp"

namespace ccl::detail {

/// A second stream of one composition's launches: what goes on there runs beside the first's, from
/// a fork to a join.
struct SideBranch {
  std::shared_ptr<Gpu> gpu;
  CUstream stream = nullptr;
  CUevent forked = nullptr, joined = nullptr;

  static Result<std::unique_ptr<SideBranch>> make(std::shared_ptr<Gpu> gpu);
  explicit SideBranch(std::shared_ptr<Gpu> of) : gpu{std::move(of)} {}
  ~SideBranch();
  SideBranch(const SideBranch&) = delete;
  SideBranch& operator=(const SideBranch&) = delete;
};

/// What the wires of a rank on a GPU stand on.
struct Connections::OnDevice {
  GpuArena arena;
  GpuBlock tables{};
  std::vector<Connection> connections{};
  bool holds_slots = false;                  // of some of its wires
  std::unique_ptr<SideBranch> side{};        // of `CopyEngine`
  std::unique_ptr<StreamSignals> signals{};  // where it tells by stream
};

}  // namespace ccl::detail
