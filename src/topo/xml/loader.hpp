#pragma once

#include <ccl/topo/xml.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.hpp"

namespace ccl::topo::detail {

inline std::string text(const Element& element, std::string_view attribute) {
  const std::string* found = element.find(attribute);
  return found == nullptr ? std::string() : *found;
}

inline std::vector<std::pair<std::string, std::string>> attributes_but(
    const Element& element, std::initializer_list<std::string_view> used) {
  std::vector<std::pair<std::string, std::string>> rest;
  for (const auto& attribute : element.attributes) {
    if (std::find(used.begin(), used.end(), attribute.first) == used.end()) {
      rest.push_back(attribute);
    }
  }
  return rest;
}

/// Turns one `<system>` into a graph: first the tree of CPUs, PCI and devices, then the links
/// across.
class Loader {
 public:
  explicit Loader(const XmlFile& file) : file_(file) {}
  Result<LoadedGraph> run();

 private:
  /// Leaves an element out that is unknown, or in the place of others.
  void leave_out(const Element& element);
  void repair(int line, std::string what) { loaded_.repairs.push_back({line, std::move(what)}); }

  /// Leaves out children of an element that may have none.
  void leave_out_below(const Element& element) {
    for (const Element& child : element.children) {
      repair(child.line, fmt::format("<{}> below <{}> left out", child.name, element.name));
    }
  }

  auto wrong(const Element& element, std::string_view attribute, std::string_view value,
             std::string_view why) {
    return fail(
        Errc::invalid_argument,
        fmt::format("{}:{}: <{}> {}=\"{}\" is refused ({}); correct it or leave it out", file_.name,
                    element.line, element.name, attribute, ccl::detail::shortened(value, 80), why));
  }

  Result<int> integer(const Element& element, std::string_view attribute, int fallback,
                      long long least, long long most) {
    const std::string* text = element.find(attribute);
    if (text == nullptr || text->empty()) return fallback;
    // Blanks and a plus before a number count for nothing, as in NCCL.
    std::string_view digits = *text;
    digits.remove_prefix(std::min(digits.find_first_not_of(" \t"), digits.size()));
    const bool minus = digits.starts_with('-');
    if (minus || digits.starts_with('+')) digits.remove_prefix(1);
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) {
      digits.remove_prefix(2);
      base = 16;
    }
    long long value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    // Text after a number, as in "18 " or "1.0", is dropped, as in NCCL.
    if (error != std::errc() || end == digits.data() || value < 0) {  // below 0: a second minus
      return wrong(element, attribute, *text, "not a number");
    }
    if (minus) value = -value;
    if (value < least || value > most) {
      return wrong(element, attribute, *text, fmt::format("not within {} and {}", least, most));
    }
    return static_cast<int>(value);
  }

  Result<float> real(const Element& element, std::string_view attribute, float fallback) {
    const std::string* text = element.find(attribute);
    if (text == nullptr || text->empty()) return fallback;
    const auto [number, size] = ccl::detail::leading_number(*text);
    const auto value = static_cast<float>(number);
    if (size == 0) return wrong(element, attribute, *text, "not a number");
    if (!(value >= 0 && value < 1e9F)) return wrong(element, attribute, *text, "out of range");
    return value;
  }

  // The tree: read_graph.cpp.
  Result<void> add_cpus(const Element& root);
  Result<int> add_cpu(const Element& element);
  Result<void> add_below(const Element& element, int parent);
  Result<void> add_pci(const Element& element, int parent);
  Result<void> read_pci(const Element& element, Node& node);
  Result<void> read_gpu(const Element& element, Node& node);
  /// Bandwidth of the link to the parent in GB/s; repairs a missing speed or width.
  float pci_bandwidth(const Element& element, const Node::Pci& pci);
  Result<void> check_ranks();
  // Content of a NIC: read_nets.cpp.
  Result<void> add_nic(const Element& element, int parent, const int* known);
  Result<void> add_nets(const Element& element, int nic);
  /// `before`: number of the card's NETs before the function of `net`.
  int port_of_card(const Node& net, std::size_t before) const;
  void check_net_name(const Element& element, const Node& net);
  void number_nets();
  void name_unknown_wires();
  // Links across the tree: read_links.cpp.
  void connect_cpus();
  Result<void> add_gpu_links(const Element& gpu, int node);
  int nvswitch_of(int gpu);
  Result<void> add_pci_links();
  void repair_one_sided();

  const XmlFile& file_;
  LoadedGraph loaded_;
  std::map<std::string, int> hosts_;
  std::map<std::pair<int, std::int64_t>, int> by_bus_id_;
  std::vector<std::pair<const Element*, int>> gpus_, pci_links_;
  std::map<std::pair<int, int>, int> peer_lines_;
  std::map<int, int> net_lines_;
  std::map<int, std::vector<int>> nets_of_;                     // of a NIC
  std::set<std::pair<int, std::int64_t>> net_numbers_;          // host and number of each NET
  std::map<std::tuple<int, std::string, int>, int> net_names_;  // line, by host, name and port
  int loose_nics_ = 0;
  std::map<std::string, int> fabrics_;  // NVSwitch node of each NVLink fabric
};

}  // namespace ccl::topo::detail
