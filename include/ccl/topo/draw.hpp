#pragma once

#include <ccl/topo/arrange.hpp>
#include <ccl/topo/connect.hpp>
#include <ccl/topo/path.hpp>

#include <string>

namespace ccl::topo {

/// Returns the machine as JSON: nodes and links. With `paths`, also the paths between GPUs and
/// NETs.
std::string to_json(const Graph& graph, const Paths* paths = nullptr);
/// Writes the same text, with the paths, piece by piece.
void write_json(const Graph& graph, const Paths* paths, const TextSink& sink);
/// Returns channels as JSON.
std::string to_json(const ChannelGraph& channels);
/// Returns the different rings and trees that run, for output: trees without a root, each followed
/// by its twin.
JoinedChannels channels_of(const Arrangement& arrangement);
/// Returns joined rings and trees as JSON.
std::string to_json(const JoinedChannels& joined);

/// Returns the machine for Graphviz.
std::string to_dot(const Graph& graph);

/// Returns the paths between GPUs and NETs for Graphviz. Each path is an arrow; it has two heads if
/// both directions are alike.
std::string paths_to_dot(const Graph& graph, const Paths& paths);
/// Returns joined channels for Graphviz. Edges are labeled with the channel, and trees point down.
std::string rings_to_dot(const JoinedChannels& joined);
std::string trees_to_dot(const JoinedChannels& joined);

/// Returns the machine as a picture: CPUs at the top, devices below them, NVLink at the bottom.
std::string to_svg(const Graph& graph);
/// Returns the paths between GPUs and NETs as a colored table. A cell has the type and the
/// bandwidth from the row's node to the column's.
std::string paths_to_svg(const Graph& graph, const Paths& paths);
/// Returns the routes of channels through the machine, with GPUs on a circle. Equal channels are
/// drawn once.
std::string to_svg(const ChannelGraph& channels);
/// Returns a picture of the two binary trees over `machines` machines.
std::string trees_svg(int machines);

}  // namespace ccl::topo
