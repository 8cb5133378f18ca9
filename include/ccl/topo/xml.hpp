#pragma once

#include <ccl/types/result.hpp>
#include <ccl/topo/graph.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ccl::topo {

/// An XML element as read: order of attributes and children is kept, so that what ccl does not know
/// survives reading and writing.
struct Element {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<Element> children;
  int line = 0;  // where it started in its file

  const std::string* find(std::string_view attribute) const;
  void set(std::string_view attribute, std::string value);
};

/// A parsed file. `name` appears in messages.
struct XmlFile {
  std::string name;
  Element root;
};

/// Something in the input that was wrong and what was assumed instead.
struct Repair {
  int line = 0;
  std::string what;
};

/// A machine out of a file, and what had to be assumed.
struct LoadedGraph {
  Graph graph;
  std::vector<Repair> repairs;
};

/// Nesting deeper than this is refused: PCI has 256 buses.
constexpr int max_xml_depth = 300;

[[nodiscard]] Result<XmlFile> parse_xml(std::string_view text, std::string name);
[[nodiscard]] Result<XmlFile> read_xml(const std::string& path);
[[nodiscard]] Result<void> write_file(const std::string& path, std::string_view text);
/// Text without declaration, comments and tabs: NCCL's parser refuses those.
std::string print_xml(const Element& root);

/// Machine from `<system>`, in NVIDIA's (version 1) and AMD's (version 2) dialect. Values that
/// cannot be meant give an error with file, line and attribute; values that are missing or absurd,
/// but have a sensible stand-in, are repaired and named.
[[nodiscard]] Result<LoadedGraph> to_graph(const XmlFile& file);
[[nodiscard]] Result<LoadedGraph> load_graph(const std::string& path);
/// The machine in NCCL's schema; what NCCL reads and `to_graph` gives back.
Element to_xml(const Graph& graph);

/// Lays a vendor's hint file over what was detected: the hint decides CPUs and switches, and every
/// detected GPU and NIC goes to the place that the hint gives its bus id. What the hint does not
/// know keeps its place.
Element merge(const Element& detected, const Element& hint);

/// Hosts whose GPUs are on one NVLink fabric as one machine: ranks and NETs are counted on from
/// host to host, and every host keeps its CPUs and PCI trees. Their NVSwitches become one; GPUs of
/// other cliques (attribute `fabric` of <gpu>) have another.
Element join_hosts(const std::vector<Element>& systems);

/// Number of a bus id: "0000:99:00.0" -> 0x99000. False if it is none.
bool parse_bus_id(std::string_view text, std::int64_t& id);

}  // namespace ccl::topo
