#include <ccl/topo/xml.hpp>

#include <algorithm>
#include <map>

namespace ccl::topo {
namespace {

/// Bus ids as numbers, since files differ in case and leading zeros.
std::int64_t bus_of(const Element& element) {
  std::int64_t id = -1;
  if (const std::string* text = element.find("busid")) parse_bus_id(*text, id);
  return id;
}

void collect(Element& element, std::map<std::int64_t, Element*>& by_bus) {
  for (Element& child : element.children) {
    if (child.name != "pci") continue;
    const std::int64_t id = bus_of(child);
    if (id >= 0) by_bus.emplace(id, &child);
    collect(child, by_bus);
  }
}

using Places = std::map<std::int64_t, Element*>;
using Arrivals = std::map<std::int64_t, std::vector<Element>>;

/// Moves devices of `from` that the hint contains to `arrivals`, by bus id; returns the remaining
/// ones.
Element move_known(const Element& from, const Places& places, Arrivals& arrivals) {
  Element rest = from;
  rest.children.clear();
  for (const Element& child : from.children) {
    if (child.name != "pci") {
      rest.children.push_back(child);
      continue;
    }
    const std::int64_t id = bus_of(child);
    const auto place = places.find(id);
    const bool leaf = std::none_of(child.children.begin(), child.children.end(),
                                   [](const Element& e) { return e.name == "pci"; });
    Element kept = move_known(child, places, arrivals);
    if (place == places.end()) {
      if (leaf || !kept.children.empty()) rest.children.push_back(std::move(kept));
      continue;
    }
    // The hint's values win: they describe the machine that a flattened VM hides.
    for (const auto& [key, value] : child.attributes) {
      if (place->second->find(key) == nullptr) place->second->set(key, value);
    }
    for (Element& below : kept.children) arrivals[id].push_back(std::move(below));
  }
  return rest;
}

void merge_attributes(Element& element, Arrivals& arrivals) {
  for (Element& child : element.children) merge_attributes(child, arrivals);
  const auto arrived = element.name == "pci" ? arrivals.find(bus_of(element)) : arrivals.end();
  if (arrived == arrivals.end()) return;
  for (Element& below : arrived->second) {
    const bool known =
        below.name != "pci" && std::any_of(element.children.begin(), element.children.end(),
                                           [&](const Element& e) { return e.name == below.name; });
    if (!known) element.children.push_back(std::move(below));
  }
  arrivals.erase(arrived);
}

}  // namespace

Element merge(const Element& detected, const Element& hint) {
  Element merged = hint;
  Places places;
  for (Element& cpu : merged.children) collect(cpu, places);
  Arrivals arrivals;
  std::vector<Element> rest;
  for (const Element& cpu : detected.children) {
    rest.push_back(move_known(cpu, places, arrivals));
  }
  merge_attributes(merged, arrivals);
  const auto is_place = [](const Element& e) {
    return e.name == "cpu" || e.name == "pci" || e.name == "nic";
  };
  // The hint's list of CPUs is complete. Ranks without a GPU need a CPU, so there is at least one.
  const bool places_all = std::any_of(hint.children.begin(), hint.children.end(), is_place);
  for (Element& cpu : rest) {
    const std::string* numa = cpu.find("numaid");
    const auto same =
        std::find_if(merged.children.begin(), merged.children.end(), [&](const Element& e) {
          const std::string* other = e.find("numaid");
          return e.name == cpu.name && numa != nullptr && other != nullptr && *numa == *other;
        });
    if (same == merged.children.end()) {
      if (cpu.children.empty() && places_all) continue;
      merged.children.push_back(std::move(cpu));
      continue;
    }
    for (const auto& [key, value] : cpu.attributes) {
      if (same->find(key) == nullptr) same->set(key, value);
    }
    for (Element& child : cpu.children) same->children.push_back(std::move(child));
  }
  // Hints of some clouds contain only places. All sockets of a machine are of one kind.
  for (Element& cpu : merged.children) {
    if (cpu.name != "cpu" || detected.children.empty()) continue;
    for (const char* kind : {"arch", "vendor", "familyid", "modelid", "host_hash"}) {
      const std::string* known = detected.children.front().find(kind);
      if (known != nullptr && cpu.find(kind) == nullptr) cpu.set(kind, *known);
    }
  }
  if (merged.find("version") == nullptr) merged.set("version", "1");
  return merged;
}

}  // namespace ccl::topo
