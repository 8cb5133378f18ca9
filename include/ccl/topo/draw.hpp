#pragma once

#include <ccl/topo/connect.hpp>
#include <ccl/topo/path.hpp>

#include <string>

namespace ccl::topo {

/// The machine as JSON: nodes, links and, with `paths`, how GPUs and NETs reach each other.
std::string to_json(const Graph& graph, const Paths* paths = nullptr);
/// Channels as JSON.
std::string to_json(const ChannelGraph& channels);
/// Joined rings and trees as JSON.
std::string to_json(const JoinedChannels& joined);

/// The machine for Graphviz.
std::string to_dot(const Graph& graph);

/// The machine as a picture: CPUs above, what hangs on them below, NVLink at the bottom.
std::string to_svg(const Graph& graph);
/// The ways of channels through the machine, GPUs on a circle; equal channels are drawn once.
std::string to_svg(const ChannelGraph& channels);
/// The two binary trees over `machines` machines.
std::string trees_svg(int machines);

}  // namespace ccl::topo
