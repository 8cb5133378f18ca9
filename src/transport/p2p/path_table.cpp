#include "transport/p2p/path_table.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <algorithm>

#include "gpu/devices.hpp"

namespace ccl::detail {
namespace {
constexpr unsigned fault_bits = 0x0f, nvlink_bit = 0x10, relays_bit = 0x20, untried_bit = 0x40,
                   loan_bit = 0x80;

bool names(std::string_view text, const PeerInfo& peer) {
  if (text.find(':') == text.npos) return text == std::to_string(peer.rank);
  return bus_id_of(std::string{text}) == peer.bus_id;
}
}  // namespace

std::uint8_t PathReport::byte() const {
  return std::uint8_t(unsigned(fault) | (nvlink ? nvlink_bit : 0) | (relays ? relays_bit : 0) |
                      (untried ? untried_bit : 0) | (on_loan ? loan_bit : 0));
}
PathReport PathReport::of(std::uint8_t byte) {
  PathReport said;
  said.fault = PathFault(byte & fault_bits);
  said.nvlink = (byte & nvlink_bit) != 0;
  said.relays = (byte & relays_bit) != 0;
  said.untried = (byte & untried_bit) != 0;
  said.on_loan = (byte & loan_bit) != 0;
  return said;
}

PathFault PathTable::fault(int a, int b) const {
  const PathFault first = at(std::min(a, b), std::max(a, b)).fault;
  return first != PathFault::none ? first : at(std::max(a, b), std::min(a, b)).fault;
}

bool PathTable::to_try(int a, int b) const {
  const auto against = [](const PathReport& said) {
    return said.fault != PathFault::none && !said.untried;
  };
  return (at(a, b).untried || at(b, a).untried) && !against(at(a, b)) && !against(at(b, a));
}

int PathTable::relay(int a, int b) const {
  const auto joined = [this](int p, int q) {
    return fault(p, q) == PathFault::none && at(p, q).nvlink && at(q, p).nvlink;
  };
  if (a == b || joined(a, b)) return -1;
  std::vector<int> between;
  for (int m = 0; m < places_; ++m) {
    if (m == a || m == b || !joined(a, m) || !joined(b, m)) continue;
    if (at(a, m).relays && at(b, m).relays) between.push_back(m);
  }
  if (between.empty()) return -1;
  return between[std::size_t(a + b) % between.size()];
}

bool PathTable::lends(int m) const {
  for (int a = 0; a < places_; ++a) {
    for (int b = 0; b < places_; ++b) {
      if (at(b, m).on_loan && relay(a, b) == m) return true;
    }
  }
  return false;
}

Result<bool> p2p_excludes(const PeerInfo& a, const PeerInfo& b) {
  CCL_TRY(const std::string list, setting_text("P2P_EXCLUDE"));  // of pairs, else an error
  bool named = false;
  std::string_view rest = list;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    while (!pair.empty() && pair.front() == ' ') pair.remove_prefix(1);
    while (!pair.empty() && pair.back() == ' ') pair.remove_suffix(1);
    const std::size_t dash = pair.find('-');
    const std::string_view one = pair.substr(0, dash), other = pair.substr(dash + 1);
    named = named || (names(one, a) && names(other, b)) || (names(one, b) && names(other, a));
  }
  return named;
}

}  // namespace ccl::detail
