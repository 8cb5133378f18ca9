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

/// Paths between GPUs and NETs for Graphviz: an arrow for each, with two heads where both ways are
/// alike.
std::string paths_to_dot(const Graph& graph, const Paths& paths);
/// Joined channels for Graphviz, edges labelled with the channel; trees point down.
std::string rings_to_dot(const JoinedChannels& joined);
std::string trees_to_dot(const JoinedChannels& joined);

/// The machine as a picture: CPUs above, what hangs on them below, NVLink at the bottom.
std::string to_svg(const Graph& graph);
/// Paths between GPUs and NETs as a coloured table: type and bandwidth, from the row's to the
/// column's.
std::string paths_to_svg(const Graph& graph, const Paths& paths);
/// The ways of channels through the machine, GPUs on a circle; equal channels are drawn once.
std::string to_svg(const ChannelGraph& channels);
/// The two binary trees over `machines` machines.
std::string trees_svg(int machines);

}  // namespace ccl::topo
