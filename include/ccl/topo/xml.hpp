#pragma once

#include <ccl/topo/graph.hpp>
#include <ccl/types/result.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ccl::topo {

/// XML element. The order of attributes and children is kept, so that unknown ones survive reading
/// and writing.
struct Element {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<Element> children;
  int line = 0;  ///< line of the file in which it starts

  /// Returns the value of an attribute, or null.
  const std::string* find(std::string_view attribute) const;
  /// Sets an attribute; adds it at the end if there is none.
  void set(std::string_view attribute, std::string value);
};

/// Parsed file. `name` appears in messages.
struct XmlFile {
  std::string name;
  Element root;
};

/// Invalid input, and the value that was assumed instead.
struct Repair {
  int line = 0;
  std::string what;
};

/// Machine read from a file, and the assumptions that were made.
struct LoadedGraph {
  Graph graph;
  std::vector<Repair> repairs;
};

/// Maximum nesting; deeper files are refused. PCI has 256 buses.
constexpr int max_xml_depth = 300;

/// Parses XML text. `name` is the file name in messages.
[[nodiscard]] Result<XmlFile> parse_xml(std::string_view text, std::string name);
/// Reads and parses an XML file.
[[nodiscard]] Result<XmlFile> read_xml(const std::string& path);
/// Writes `text` to the file `path`.
[[nodiscard]] Result<void> write_file(const std::string& path, std::string_view text);
/// Returns XML text without declaration, comments and tabs, which NCCL's parser refuses.
std::string print_xml(const Element& root, int indent = 0);

/// Returns the machine of `<system>`, in NVIDIA's format (version 1) or AMD's (version 2). An
/// invalid value is an error with file, line and attribute. A missing or absurd value with a
/// sensible replacement is repaired and listed.
[[nodiscard]] Result<LoadedGraph> to_graph(const XmlFile& file);
/// Reads the machine of a topology file; see `to_graph`.
[[nodiscard]] Result<LoadedGraph> load_graph(const std::string& path);
/// Returns the machine in NCCL's schema, which NCCL and `to_graph` can read.
Element to_xml(const Graph& graph);

/// Returns the detected machine with a vendor's hint file merged in. The hint decides CPUs and
/// switches, and each detected GPU and NIC moves to the place that the hint gives its bus id. All
/// other devices keep their places.
Element merge(const Element& detected, const Element& hint);

/// Returns one machine made of hosts whose GPUs share an NVLink fabric. Ranks and NETs are numbered
/// on from host to host, and each host keeps its CPUs and PCI trees. Their NVSwitches become one;
/// GPUs of another clique (attribute `fabric` of `<gpu>`) have another NVSwitch.
Element join_hosts(const std::vector<Element>& systems);

/// Parses a bus id: "0000:99:00.0" is 0x99000. Returns false if the text is not one.
bool parse_bus_id(std::string_view text, std::int64_t& id);

}  // namespace ccl::topo
