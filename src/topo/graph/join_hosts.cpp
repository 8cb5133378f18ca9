#include <ccl/topo/xml.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

namespace ccl::topo {
namespace {

int number_of(const Element& element, std::string_view attribute) {
  const std::string* text = element.find(attribute);
  if (text == nullptr) return -1;
  const bool hex = text->rfind("0x", 0) == 0 || text->rfind("0X", 0) == 0;
  return static_cast<int>(std::strtol(text->c_str(), nullptr, hex ? 16 : 10));
}

/// Finds the highest rank of GPUs and device number of NETs, as offsets for the next host.
void find_last(const Element& element, int& rank, int& dev) {
  if (element.name == "gpu") rank = std::max(rank, number_of(element, "rank"));
  if (element.name == "net") dev = std::max(dev, number_of(element, "dev"));
  for (const Element& child : element.children) find_last(child, rank, dev);
}

void shift(Element& element, int ranks, int devs) {
  const auto raise = [&](std::string_view attribute, int by) {
    const int number = number_of(element, attribute);
    if (number >= 0) element.set(attribute, std::to_string(number + by));
  };
  if (element.name == "gpu") raise("rank", ranks);
  if (element.name == "net") raise("dev", devs);
  for (Element& child : element.children) shift(child, ranks, devs);
}

}  // namespace

Element join_hosts(const std::vector<Element>& systems) {
  Element joined;
  joined.name = "system";
  int ranks = 0, devs = 0, hosts = 0;
  for (Element system : systems) {
    if (joined.children.empty()) joined.attributes = system.attributes;
    int last_rank = -1, last_dev = -1;
    find_last(system, last_rank, last_dev);
    shift(system, ranks, devs);
    ranks += last_rank + 1;
    devs += last_dev + 1;
    // A file may describe several hosts, and devices outside of any CPU.
    std::map<std::string, std::string> names;
    std::string first;  // host of this file
    const auto name_of = [&](const Element& cpu) {
      const std::string* const given = cpu.find("host_hash");
      const auto [known, fresh] = names.try_emplace(given == nullptr ? std::string{} : *given);
      if (fresh) known->second = fmt::format("{:#x}", ++hosts);
      if (first.empty()) first = known->second;
      return known->second;
    };
    Element loose;
    for (Element& child : system.children) {
      if (child.name == "cpu") {
        child.set("host_hash", name_of(child));
        joined.children.push_back(std::move(child));
      } else if (child.name == "pci" || child.name == "nic") {
        if (loose.children.empty()) loose.line = child.line;
        loose.children.push_back(std::move(child));
      } else {
        joined.children.push_back(std::move(child));
      }
    }
    if (loose.children.empty()) continue;
    loose.name = "cpu";
    loose.set("numaid", "4096");  // no number of a NUMA node
    loose.set("host_hash", first.empty() ? name_of(loose) : first);
    joined.children.push_back(std::move(loose));
  }
  return joined;
}

}  // namespace ccl::topo
