#pragma once

// Simulated machines of eight GPUs, and what a step costs on them.
#include <ccl/simulate.hpp>
#include <ccl/topo/xml.hpp>

#include <utility>

#include "catch.hpp"

namespace ccl::test {

inline sim::Cluster machines(int nodes) {
  const auto loaded =
      topo::load_graph(CCL_SOURCE_DIR "/docs/validation/machines/eight_gpus_eight_nics.xml");
  if (!loaded) FAIL(loaded.error().what);
  auto cluster = sim::Cluster::of(loaded->graph, nodes);
  if (!cluster) FAIL(cluster.error().what);
  return std::move(*cluster);
}

inline sim::Options one_channel(Index slot_bytes) {
  sim::Options options;
  options.plan.emplace();
  options.plan->channels = 1;
  options.plan->slot_bytes = slot_bytes;
  return options;
}

template <class Op, class Algo, class Proto>
sim::Report run(const sim::Cluster& cluster, Index bytes, const sim::Options& options = {}) {
  auto report = sim::simulate<Op, Algo, Proto>(cluster, bytes, options);
  if (!report) FAIL(report.error().what);
  return std::move(*report);
}

template <class Proto>
detail::Rates of(detail::Path path) {
  return detail::rates(path, detail::Mover::wires, detail::packing_of<Proto>());
}

/// Microseconds of `bytes` through one block.
template <class Proto>
double lanes_us(double bytes) {
  return bytes / (of<Proto>(detail::Path::nvlink).block_gbs * 1e3);
}

}  // namespace ccl::test
