#include "transport/ib/verbs/port_choice.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <tuple>

#include "settings/report.hpp"
#include <arpa/inet.h>

namespace ccl::detail {
namespace {

constexpr std::array<std::uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_ipv4(const ibv_gid& gid) {
  return std::equal(mapped.begin(), mapped.end(), gid.raw);
}
bool is_link_local(const ibv_gid& gid) {
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}
bool is_set(const ibv_gid& gid) {  // fe80:: followed by zeros is an unused entry
  return std::any_of(gid.raw + 8, gid.raw + 16, [](std::uint8_t byte) { return byte != 0; });
}

/// A prefix of addresses; IPv4 addresses are in GID form.
struct Range {
  ibv_gid base{};
  int bits = 0;
  static Result<Range> parse(const std::string& text) {
    const auto bad = [&](const char* why) {
      return fail(Errc::bad_setting,
                  fmt::format("{}={} does not fit ({}); it takes an address and a "
                              "prefix length, such as 10.1.0.0/16",
                              variable_of("IB_ADDR_RANGE"), text, why));
    };
    const std::size_t slash = text.find('/');
    if (slash == text.npos) return bad("there is no /");
    const std::string address = text.substr(0, slash);
    Range range;
    in_addr four{};
    int most = 128;
    if (::inet_pton(AF_INET, address.c_str(), &four) == 1) {
      std::copy(mapped.begin(), mapped.end(), range.base.raw);
      std::memcpy(range.base.raw + 12, &four, 4);
      most = 32;
    } else if (::inet_pton(AF_INET6, address.c_str(), range.base.raw) != 1) {
      return bad("this is no address");
    }
    const char* const end = text.data() + text.size();
    const auto [at, code] = std::from_chars(text.data() + slash + 1, end, range.bits);
    if (code != std::errc{} || at != end || range.bits < 0 || range.bits > most) {
      return bad("this is no prefix length");
    }
    range.bits += 128 - most;
    return range;
  }
  bool holds(const ibv_gid& gid) const {
    for (int bit = 0; bit < bits; ++bit) {
      const int mask = 0x80 >> bit % 8;
      if (((gid.raw[bit / 8] ^ base.raw[bit / 8]) & mask) != 0) return false;
    }
    return true;
  }
};

int roce_version(const ibv_gid_entry& entry) {
  return entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 2 : 1;
}

std::string listed(std::span<const ibv_gid_entry> table) {
  std::string text;
  for (const ibv_gid_entry& entry : table) {
    if (!is_set(entry.gid)) continue;
    text += fmt::format("{}{}: {} (RoCE v{})", text.empty() ? "" : ", ", entry.gid_index,
                        gid_text(entry.gid), roce_version(entry));
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Result<HcaList> HcaList::parse(std::string_view text) {
  HcaList list;
  std::string_view rest = text;
  const auto starts = [&](char c) {
    if (rest.empty() || rest.front() != c) return false;
    rest.remove_prefix(1);
    return true;
  };
  list.leaves_out_ = starts('^');
  list.exact_ = starts('=');
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view word = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (word.empty()) continue;
    const std::size_t colon = word.find(':');
    Entry entry{std::string{word.substr(0, colon)}, -1};
    if (colon != word.npos) {
      const std::string_view number = word.substr(colon + 1);
      const char* const end = number.data() + number.size();
      const auto [at, code] = std::from_chars(number.data(), end, entry.port);
      if (code != std::errc{} || at != end || entry.port < 1 || entry.port > 255) {
        return fail(Errc::bad_setting,
                    fmt::format("{}={} does not fit ({} is no port); it takes names, each "
                                "with or without :port, parted by commas, after ^ or = or both",
                                variable_of("IB_HCA"), text, number));
      }
    }
    list.entries_.push_back(std::move(entry));
  }
  return list;
}

bool HcaList::accepts(std::string_view device, int port) const {
  if (entries_.empty()) return true;
  const bool listed = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    const bool named = exact_ ? device == entry.name : device.starts_with(entry.name);
    return named && (entry.port < 0 || entry.port == port);
  });
  return listed != leaves_out_;
}

Result<GidPreference> GidPreference::from_settings() {
  GidPreference wish;
  CCL_TRY(const Index index, setting_integer("IB_GID_INDEX"));
  CCL_TRY(const Index version, setting_integer("IB_ROCE_VERSION_NUM"));
  CCL_TRY(const std::string family, setting_text("IB_ADDR_FAMILY"));
  CCL_TRY(wish.range, setting_text("IB_ADDR_RANGE"));
  wish.index = int(index);
  wish.roce_version = int(version);
  wish.ipv6 = family == "AF_INET6";
  return wish;
}

Result<ibv_gid_entry> choose_gid(std::span<const ibv_gid_entry> table, const GidPreference& wish) {
  if (wish.index >= 0) {
    for (const ibv_gid_entry& entry : table) {
      if (int(entry.gid_index) == wish.index && is_set(entry.gid)) return entry;
    }
    return fail(Errc::bad_setting,
                fmt::format("{}={} is not in use (there are {})", variable_of("IB_GID_INDEX"),
                            wish.index, listed(table)));
  }
  Range range;
  if (!wish.range.empty()) {
    CCL_TRY(range, Range::parse(wish.range));
  }
  const auto rank = [&](const ibv_gid_entry& entry) {
    return std::tuple{is_ipv4(entry.gid) == wish.ipv6, roce_version(entry) != wish.roce_version,
                      is_link_local(entry.gid), entry.gid_index};
  };
  const ibv_gid_entry* best = nullptr;
  for (const ibv_gid_entry& entry : table) {
    if (!is_set(entry.gid) || (!wish.range.empty() && !range.holds(entry.gid))) continue;
    if (best == nullptr || rank(entry) < rank(*best)) best = &entry;
  }
  if (best != nullptr) return *best;
  return fail(Errc::no_transport,
              fmt::format("no GID fits ({} is '{}', there are {}); give the port an "
                          "address, or widen the range",
                          variable_of("IB_ADDR_RANGE"), wish.range, listed(table)));
}

std::string gid_text(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  if (is_ipv4(gid)) {
    ::inet_ntop(AF_INET, gid.raw + 12, text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  }
  return text;
}

}  // namespace ccl::detail
