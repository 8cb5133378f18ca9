#include "settings/values.hpp"

#include <ccl/detail/base/selection.hpp>
#include <ccl/topo/fuse.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <mutex>
#include <vector>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "base/text.hpp"
#include <arpa/inet.h>

namespace ccl::detail {

std::optional<Index> parse_integer(std::string_view v) {
  Index n = 0;
  const auto [end, ec] = std::from_chars(v.data(), v.data() + v.size(), n);
  if (ec != std::errc{} || end != v.data() + v.size()) return {};
  return n;
}

std::optional<Index> parse_bytes(std::string_view v) {
  Index unit = 1;
  if (!v.empty()) {
    switch (upper(v.back())) {
      case 'K':
        unit = Index{1} << 10;
        break;
      case 'M':
        unit = Index{1} << 20;
        break;
      case 'G':
        unit = Index{1} << 30;
        break;
    }
  }
  if (unit != 1) v.remove_suffix(1);
  const auto n = parse_integer(v);
  if (!n || *n > (Index{1} << 62) / unit || *n < 0) return {};
  return *n * unit;
}

std::optional<double> parse_seconds(const std::string& v) {
  const auto [n, size] = leading_number(v);
  if (size == 0 || size != v.size() || !(n >= 0) || n > 1e9) return {};
  return n;
}

namespace {

using enum SettingKind;

// Calls `see` with each piece of the list. Returns true if all calls did.
template <class See>
bool all_pieces(std::string_view list, char end, See see) {
  for (;;) {
    const size_t at = std::min(list.find(end), list.size());
    if (!see(list.substr(0, at))) return false;
    if (at == list.size()) return true;
    list.remove_prefix(at + 1);
  }
}

// Names of ccl, and names of NCCL without a counterpart; a program adds its own.
struct KnownNames {
  using Names = std::map<std::string_view, std::vector<std::string_view>>;
  static Names predefined() {
    return {{"ALGO", {"Ring",         "Tree",    "OneTree",  "OrderedTree",   "OrderedChain",
                      "Doubling",     "Halving", "Bruck",    "Pat",           "Pairwise",
                      "OneShot",      "TwoShot", "Direct",   "CopyEngine",    "WindowCopies",
                      "ZeroSmCopies", "NVLS",    "NVLSTree", "CollNetDirect", "CollNetChain"}},
            {"PROTO", {"Simple", "LL", "LL128"}},
            {"TRANSPORT", {"p2p", "loopback", "shm", "ib", "plugin", "socket"}}};
  }
  Names of = predefined();
  detail::ForkMutex mutex{[this] { detail::renew(of, predefined()); }};
  static KnownNames& get() {
    static constinit detail::MadeOnce<KnownNames> one;
    return one.get();
  }
  bool contains(std::string_view setting, std::string_view name) {
    const std::lock_guard lock{mutex};
    return holds(of.at(setting), name);
  }
  void add(std::string_view setting, std::string_view name) {
    const std::lock_guard lock{mutex};
    auto& all = of.at(setting);
    if (!holds(all, plain(name))) all.push_back(name);
  }
  static bool holds(const std::vector<std::string_view>& all, std::string_view name) {
    return std::any_of(all.begin(), all.end(),
                       [&](std::string_view one) { return plain(one) == name; });
  }
  std::string list(std::string_view setting) {
    const std::lock_guard lock{mutex};
    std::string text;
    for (const std::string_view name : of.at(setting)) text += fmt::format(" {}", name);
    return text;
  }
};

// Levels are named after their algorithms.
bool is_name_list(std::string_view setting, std::string_view v) {
  std::string names = plain(v);
  if (names.starts_with('^')) {
    names.erase(0, 1);
    if (names.find_first_not_of(',') == names.npos) return false;  // excludes nothing
  }
  return all_pieces(names, ',', [&](std::string_view name) {
    return name.empty() || name.starts_with("hierarchical-") ||
           KnownNames::get().contains(setting, name);
  });
}
bool is_transport_list(std::string_view v) {
  std::string list{v};
  std::replace(list.begin(), list.end(), ' ', ',');
  return is_name_list("TRANSPORT", list);
}

// By collective, with ccl's names.
bool is_choice(std::string_view setting, std::string_view v) {
  constexpr std::string_view collectives =
      " allreduce allgather reducescatter broadcast reduce alltoall alltoallv gather scatter "
      "sendrecv send recv allreducerows ";
  return all_pieces(v, ';', [&](std::string_view piece) {
    const size_t colon = piece.find(':');
    if (colon == piece.npos) return is_name_list(setting, piece);
    return collectives.find(fmt::format(" {} ", plain(piece.substr(0, colon)))) !=
               collectives.npos &&
           is_name_list(setting, piece.substr(colon + 1));
  });
}
bool is_algo_choice(std::string_view v) {
  return is_choice("ALGO", v);
}
bool is_proto_choice(std::string_view v) {
  return is_choice("PROTO", v);
}

bool is_part_list(std::string_view v) {
  constexpr std::string_view parts =
      " INIT COLL P2P SHM NET GRAPH TUNING ENV ALLOC CALL PROXY NVLS BOOTSTRAP REG PROFILE RAS "
      "ALL ";
  if (v.starts_with('^')) v.remove_prefix(1);
  return all_pieces(v, ',', [&](std::string_view piece) {
    return piece.empty() || (piece.find(' ') == piece.npos &&
                             parts.find(fmt::format(" {} ", upper(piece))) != parts.npos);
  });
}

bool is_address_range(std::string_view v) {
  const size_t slash = std::min(v.find('/'), v.size());
  const std::string address{v.substr(0, slash)};
  std::array<unsigned char, 16> bits{};
  const Index most = ::inet_pton(AF_INET, address.c_str(), bits.data()) == 1    ? 32
                     : ::inet_pton(AF_INET6, address.c_str(), bits.data()) == 1 ? 128
                                                                                : -1;
  const auto length = parse_integer(v.substr(std::min(slash + 1, v.size())));
  return length && *length >= 0 && *length <= most;
}

// Characters of the names of interfaces and devices.
bool is_nic_groups(std::string_view v) {
  const bool named = v.find_first_not_of(";,") != v.npos;
  return named && topo::parse_groups(v) && all_pieces(v, ';', [](std::string_view group) {
           return group.empty() || all_pieces(group, ',', [](std::string_view nic) {
                    return std::all_of(nic.begin(), nic.end(),
                                       [](char c) { return c > ' ' && c <= '~' && c != '/'; });
                  });
         });
}

bool is_number(std::string_view v) {
  return !v.empty() && v.find_first_not_of("0123456789") == v.npos;
}
// 0000:1b:00.0
bool is_bus_id(std::string_view v) {
  return std::count(v.begin(), v.end(), ':') == 2 && std::count(v.begin(), v.end(), '.') == 1 &&
         v.find_first_not_of("0123456789abcdefABCDEF:.") == v.npos;
}
bool is_pair_list(std::string_view v) {
  if (v.ends_with(',')) v.remove_suffix(1);
  return all_pieces(v, ',', [](std::string_view pair) {
    pair.remove_prefix(std::min(pair.find_first_not_of(' '), pair.size()));
    pair = pair.substr(0, pair.find_last_not_of(' ') + 1);
    const size_t dash = pair.find('-');
    if (dash == pair.npos) return false;
    const auto both = [&](auto is) {
      return is(pair.substr(0, dash)) && is(pair.substr(dash + 1));
    };
    return both(is_number) || both(is_bus_id);
  });
}

// An IPv6 address stands in brackets.
bool is_host_port(std::string_view v) {
  const size_t colon = v.rfind(':');
  if (colon == v.npos || colon == 0) return false;
  const std::string_view host = v.substr(0, colon), digits = v.substr(colon + 1);
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const auto port = is_number(digits) ? parse_integer(digits) : std::nullopt;
  return port && *port >= 1 && *port <= 65535 &&
         (in_brackets || host.find_first_of(":[]") == host.npos);
}

// Form of a text setting that does not accept any text.
struct Form {
  std::string_view name;
  bool (*fits)(std::string_view);
  std::string_view accepts;
};
constexpr std::string_view choice =
    "a list of names, or ^ and such a list, for all collectives or behind the name of one and a "
    "colon, parted by semicolons, such as Ring,Tree;broadcast:^Tree; it knows allreduce allgather "
    "reducescatter broadcast reduce alltoall alltoallv gather scatter sendrecv";
constexpr std::array forms{
    Form{"ALGO", is_algo_choice, choice},
    Form{
        "DEBUG_SUBSYS", is_part_list,
        "a list, parted by commas, of INIT BOOTSTRAP COLL P2P SHM NET GRAPH TUNING ENV ALLOC PROXY "
        "ALL, such as INIT,NET, or ^ and such a list"},
    Form{"IB_ADDR_RANGE", is_address_range,
         "an address and a prefix length, such as 10.1.0.0/16 or fd00::/8"},
    Form{"NET_FORCE_MERGE", is_nic_groups,
         "groups parted by semicolons, each a list of names of NICs parted by commas, with or "
         "without :port, such as mlx5_0,mlx5_1;mlx5_2:1,mlx5_3:1"},
    Form{"P2P_EXCLUDE", is_pair_list,
         "pairs parted by commas, each of two ranks, such as 0-1, or of the bus ids of two GPUs, "
         "such as 0000:1b:00.0-0000:43:00.0"},
    Form{"PROTO", is_proto_choice, choice},
    Form{"RAS_ADDR", is_host_port,
         "host:port, or [address]:port for IPv6, with a port from 1 to 65535"},
    Form{"TRANSPORT", is_transport_list,
         "a list of names, parted by commas, or ^ and such a list, such as shm,socket"},
};
const Form* form_of(const Setting& s) {
  const auto* const found =
      std::find_if(forms.begin(), forms.end(), [&](const Form& f) { return f.name == s.name; });
  return found == forms.end() ? nullptr : found;
}

/// A list that ends with a number takes larger ones, too, as NCCL does for levels of paths.
bool is_beyond(const Setting& s, std::string_view v) {
  const std::size_t last = s.words.rfind(' ');
  const auto most = parse_integer(s.words.substr(last == s.words.npos ? 0 : last + 1));
  return most && parse_integer(v).value_or(-1) > *most;
}

bool is_word(const Setting& s, std::string_view v) {
  if (is_beyond(s, v)) return true;
  const std::string words = fmt::format(" {} ", s.words);
  return v.find(' ') == v.npos && words.find(fmt::format(" {} ", upper(v))) != words.npos;
}

}  // namespace

bool know_name(const char* setting, const char* name) {
  KnownNames::get().add(setting, name);
  return true;
}

std::string valid_values(const Setting& s) {
  switch (s.kind) {
    case flag:
      return "0 or 1";
    case integer:
      if (s.most == 0) return fmt::format("a whole number, at least {}", s.least);
      return fmt::format("a whole number from {} to {}", s.least, s.most);
    case bytes:
      return fmt::format("a number of bytes, at least {}{}, with K, M or G for powers of 1024",
                         s.least, s.most == 0 ? "" : fmt::format(" and at most {}", s.most));
    case seconds:
      return "a number of seconds, at least 0 and at most 1e9";
    case word: {
      std::string list{s.words};
      for (size_t at = 0; (at = list.find(' ', at)) != list.npos; at += 2)
        list.replace(at, 1, ", ");
      return "one of " + list;
    }
    case text: {
      std::string accepts{form_of(s) == nullptr ? "any text" : form_of(s)->accepts};
      if (s.name == "ALGO" || s.name == "PROTO" || s.name == "TRANSPORT") {
        accepts += "; there are" + KnownNames::get().list(s.name);
      }
      return accepts;
    }
  }
  return "";
}

bool fits(const Setting& s, const std::string& v) {
  const auto within = [&](std::optional<Index> n) {
    return n && *n >= s.least && (s.most == 0 || *n <= s.most);
  };
  switch (s.kind) {
    case flag:
      return v == "0" || v == "1";
    case integer:
      return within(parse_integer(v));
    case bytes:
      return within(parse_bytes(v));
    case seconds:
      return parse_seconds(v).has_value();
    case word:
      return is_word(s, v);
    case text:
      return form_of(s) == nullptr || form_of(s)->fits(v);
  }
  return false;
}

}  // namespace ccl::detail
