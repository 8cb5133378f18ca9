#include "topo/discover/fabric_in_file.hpp"

#include <ccl/topo/configured.hpp>
#include <ccl/topo/xml.hpp>

namespace ccl::topo {
namespace {
/// The attribute of the GPU with this bus id below `element`.
std::string fabric_in(const Element& element, std::int64_t bus_id) {
  const std::string* const text = element.find("busid");
  std::int64_t id = -1;
  const bool same = text != nullptr && parse_bus_id(*text, id) && id == bus_id;
  for (const Element& child : element.children) {
    const std::string* const fabric = child.name == "gpu" ? child.find("fabric") : nullptr;
    if (same && fabric != nullptr) return *fabric;
    if (std::string below = fabric_in(child, bus_id); !below.empty()) return below;
  }
  return {};
}
}  // namespace

Result<std::string> fabric_in_file(std::int64_t bus_id) {
  CCL_TRY(const std::string given, configured_file());
  if (given.empty()) return std::string{};
  const auto file = read_xml(given);
  // A file that cannot be read is an error when ranks are placed, for all of them.
  return file ? fabric_in(file->root, bus_id) : std::string{};
}

}  // namespace ccl::topo
