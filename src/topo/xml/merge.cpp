#include <ccl/topo/xml.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.hpp"

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

std::string text_of(const Element& element, std::string_view attribute) {
  const std::string* text = element.find(attribute);
  return text == nullptr ? std::string() : *text;
}

/// Returns those of `found` that `hinted` describes, by name. Ports of a card can have one name:
/// the port tells them apart, if the hint has it.
std::vector<Element*> described_by(std::vector<Element>& found, const Element& hinted) {
  std::vector<Element*> named;
  for (Element& one : found) {
    const bool same = one.name == hinted.name && text_of(one, "name") == text_of(hinted, "name");
    if (same) named.push_back(&one);
  }
  const std::string port = text_of(hinted, "port");
  if (named.size() < 2 || port.empty()) return named;
  std::erase_if(named, [&](const Element* one) { return text_of(*one, "port") != port; });
  return named;
}

/// Puts the NETs that detection found at a NIC into the hint's `<nic>` for it, whose other NETs are
/// not of this machine. The hint's values win for a NET of the same name, but for its number.
void merge_nic(Element& hint, Element& detected) {
  for (const auto& [key, value] : detected.attributes) {
    if (hint.find(key) == nullptr) hint.set(key, value);
  }
  std::vector<Element> hinted = std::move(hint.children);
  hint.children = std::move(detected.children);
  for (Element& below : hinted) {
    const std::vector<Element*> same = described_by(hint.children, below);
    for (Element* const found : same) {
      for (const auto& [key, value] : below.attributes) {
        if (key != "dev") found->set(key, value);
      }
    }
    if (!same.empty()) continue;
    if (below.name != "net" || hint.children.empty()) hint.children.push_back(std::move(below));
  }
}

template <class Visit>
void each_net(Element& element, const Visit& visit) {
  if (element.name == "net") visit(element);
  for (Element& child : element.children) each_net(child, visit);
}

/// Gives NETs of a hint other numbers than those of detected ones. Each file numbers only the NETs
/// that it has.
void number_apart(Element& hint, Element detected) {
  constexpr int most = 1 << 24;
  const auto number = [](const Element& net) {
    const auto read = ccl::detail::leading_number(text_of(net, "dev"));
    return read.size == 0 ? -1 : static_cast<int>(std::clamp<double>(read.value, -1, most));
  };
  std::set<int> taken;
  int next = 0;
  const auto beyond = [&](const Element& net) { next = std::max(next, number(net) + 1); };
  each_net(detected, [&](const Element& net) { taken.insert(number(net)); });
  each_net(detected, beyond);
  each_net(hint, beyond);
  each_net(hint, [&](Element& net) {
    const bool missing = text_of(net, "dev").empty();
    if (missing || taken.contains(number(net))) net.set("dev", std::to_string(next++));
  });
}

/// Adds a detected device to an element of the hint, unless the hint describes one of its kind
/// there. A bus has any number of functions below it.
void add_detected(Element& place, Element&& device) {
  const auto known =
      std::find_if(place.children.begin(), place.children.end(),
                   [&](const Element& e) { return e.name != "pci" && e.name == device.name; });
  if (known == place.children.end()) {
    place.children.push_back(std::move(device));
  } else if (device.name == "nic") {
    merge_nic(*known, device);
  }
}

void merge_attributes(Element& element, Arrivals& arrivals) {
  for (Element& child : element.children) merge_attributes(child, arrivals);
  const auto arrived = element.name == "pci" ? arrivals.find(bus_of(element)) : arrivals.end();
  if (arrived == arrivals.end()) return;
  for (Element& below : arrived->second) add_detected(element, std::move(below));
  arrivals.erase(arrived);
}

}  // namespace

Element merge(const Element& detected, const Element& hint) {
  Element merged = hint;
  number_apart(merged, detected);
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
    for (Element& child : cpu.children) add_detected(*same, std::move(child));
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
