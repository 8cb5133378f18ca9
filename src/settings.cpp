#include <ccl/settings.hpp>
#include <ccl/topo/fuse.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <vector>

#include <arpa/inet.h>
#include <unistd.h>

namespace ccl {
namespace {

using enum SettingKind;
constexpr bool nccl = true;

constexpr Index any = 0;
// Sorted by name.
constexpr std::array table{
    Setting{"ALGO", text, "", nccl,
            "algorithms to choose from: a list of names, or ^ and a list to leave out; "
            "allreduce:list for one collective, lists parted by semicolons. Collectives that only "
            "move messages between pairs of ranks are asked only where a list names them"},
    Setting{"BOOTSTRAP_KEEPALIVE", integer, "2", false,
            "seconds of silence after which the host of a neighbour is probed; it is lost after "
            "two probes, a second apart, without an answer",
            1, 3600},
    Setting{"BUFFSIZE", bytes, "", nccl,
            "bytes of a wire's buffer in Simple, all its slots together; by default the "
            "composition's choice",
            4096, Index{1} << 31},
    Setting{
        "CHECK", flag, "0", false,
        "1: compare operation, count, type and root between ranks before each collective, and the "
        "lengths of messages at their two ends; on GPUs, that buffers are memory that kernels can "
        "use"},
    Setting{"COMM_ID", text, "", nccl,
            "host:port where rank 0 listens for the others while ranks find each other; "
            "[address]:port for IPv6"},
    Setting{"CUMEM_ENABLE", flag, "1", nccl,
            "0: share GPU memory by legacy IPC handles instead of cuMem handles"},
    Setting{"DEBUG", word, "WARN", nccl, "how much is logged", any, any,
            "NONE VERSION WARN INFO ABORT TRACE"},
    Setting{"DEBUG_FILE", text, "stderr", nccl,
            "where the log goes: stderr, stdout or a path; %h becomes the host's name, %p the "
            "process id"},
    Setting{"DEBUG_SUBSYS", text, "INIT,BOOTSTRAP,ENV", nccl,
            "subsystems logged at INFO and TRACE: a list of INIT BOOTSTRAP COLL P2P SHM NET GRAPH "
            "TUNING ENV ALLOC PROXY ALL; ^ and a list: all but these"},
    Setting{"DMABUF_ENABLE", flag, "1", nccl, "0: RDMA devices do not reach GPU memory by DMA-BUF"},
    Setting{"GDR_FLUSH_DISABLE", flag, "0", nccl,
            "1: do not read what RDMA devices have written to GPU memory before the GPU is told"},
    Setting{"GRAPH_DUMP_FILE", text, "", nccl, "XML file to which the graphs found are written"},
    Setting{"GRAPH_FILE", text, "", nccl, "XML file with the graphs to use instead of searching"},
    Setting{"HOSTID", text, "", nccl,
            "name of this host when deciding which ranks share one; by default of boot id and "
            "network namespace"},
    Setting{"IB_ADAPTIVE_ROUTING", integer, "-2", nccl,
            "1: the network may reorder packets, so that large pieces of a step are announced by a "
            "write of their own; 0: it keeps their order; -2: 1 on InfiniBand, 0 on RoCE",
            -2, 1},
    Setting{"IB_ADDR_FAMILY", word, "AF_INET", nccl,
            "address family of the RoCE GIDs to prefer, where CCL_IB_GID_INDEX is -1", any, any,
            "AF_INET AF_INET6"},
    Setting{"IB_ADDR_RANGE", text, "", nccl,
            "address/prefix length, such as 10.1.0.0/16, that RoCE GIDs are taken from"},
    Setting{"IB_AR_THRESHOLD", integer, "8192", nccl,
            "bytes from which CCL_IB_ADAPTIVE_ROUTING announces pieces apart", 0, Index{1} << 31},
    Setting{"IB_DISABLE", flag, "0", nccl, "1: never use InfiniBand or RoCE"},
    Setting{"IB_GID_INDEX", integer, "-1", nccl,
            "index of the GID that connections start from; -1: choose by family, range and version",
            -1, 65535},
    Setting{"IB_GPU_MEMORY", flag, "0", false,
            "1: slots of GPU ranks lie in GPU memory where the devices reach it, by DMA-BUF or "
            "nvidia-peermem; has not been run on hardware"},
    Setting{"IB_HCA", text, "", nccl,
            "RDMA devices to use: a list of prefixes of names, each with :port or without; = "
            "before the list: whole names; ^ before it: all but these"},
    Setting{"IB_MERGE_NICS", flag, "1", nccl,
            "1: ports of one card (and devices that are on no PCI bus) are one NIC, over which "
            "every step is striped; 0: each channel of a connection uses one port"},
    Setting{
        "IB_PCI_RELAXED_ORDERING", integer, "2", nccl,
        "1 or 2: data may pass other data on the PCI bus, where device and kernel can; 0: never", 0,
        2},
    Setting{"IB_PKEY", integer, "0", nccl, "index of the partition key", 0, 65535},
    Setting{"IB_QPS_PER_CONNECTION", integer, "1", nccl,
            "queue pairs of a channel on each port; the ends take the larger number", 1, 64},
    Setting{"IB_RETRY_CNT", integer, "7", nccl,
            "times that a packet without an answer is sent again before the queue pair fails", 0,
            7},
    Setting{"IB_ROCE_VERSION_NUM", integer, "2", nccl,
            "RoCE version of the GIDs to prefer, where CCL_IB_GID_INDEX is -1", 1, 2},
    Setting{"IB_SL", integer, "-1", nccl, "service level; -1: 0", -1, 15},
    Setting{"IB_SPLIT_DATA_ON_QPS", flag, "0", nccl,
            "1: every step is spread over all queue pairs of its channel; 0: steps take turns"},
    Setting{"IB_TC", integer, "-1", nccl, "traffic class; -1: 0", -1, 255},
    Setting{"IB_TIMEOUT", integer, "20", nccl,
            "a packet without an answer is sent again after 4.096 us * 2^this; 0: never", 0, 31},
    Setting{"INIT_TIMEOUT", seconds, "60", false,
            "seconds without progress after which the creation of a communicator fails; 0: never"},
    Setting{"JOURNAL_SIZE", integer, "256", false,
            "operations that each communicator remembers, for diagnosis", 1, 1 << 20},
    Setting{"LL128_BUFFSIZE", bytes, "", nccl, "the same in LL128", 4096, Index{1} << 31},
    Setting{"LL_BUFFSIZE", bytes, "", nccl, "the same in LL", 4096, Index{1} << 31},
    Setting{"MAX_CTAS", integer, "", nccl, "most thread blocks (CPU: channels) of one collective",
            1, 4096},
    Setting{"MEMORY_BUDGET", bytes, "128M", false,
            "bytes of buffers that one communicator may hold on one rank", 1, any},
    Setting{"MIN_CTAS", integer, "", nccl,
            "fewest channels of one collective (a GPU's blocks follow from the size)", 1, 4096},
    Setting{"MNNVL_CLIQUE_ID", integer, "-1", nccl,
            "which part of its NVLink domain a GPU counts to; -1: as NVML says", -1, any},
    Setting{"MNNVL_ENABLE", integer, "2", nccl,
            "0: no P2P between hosts; 1 and 2: where NVLink joins them and the driver has fabric "
            "handles",
            0, 2},
    Setting{"MNNVL_UUID", integer, "-1", nccl,
            "the NVLink domain over several hosts that a GPU counts to; -1: as NVML says", -1, any},
    Setting{"MULTI_RANK_GPU_ENABLE", flag, "0", nccl, "1: several ranks may share one GPU"},
    Setting{
        "NCHANNELS_PER_NET_PEER", integer, "", nccl,
        "channels, each with connections of its own, of Pairwise (send and receive, all-to-all, "
        "gather, scatter) where some ranks reach each other over a network; CCL_MIN_CTAS and "
        "CCL_MAX_CTAS bound them on CPU ranks; by default the composition's choice",
        1, 64},
    Setting{"NET", word, "", nccl, "the network to use: Socket or IB", any, any, "SOCKET IB"},
    Setting{"NET_FORCE_MERGE", text, "", nccl,
            "groups of NICs that count as one, whatever CCL_NET_MERGE_LEVEL says: lists of names, "
            "each with :port or without, parted by semicolons"},
    Setting{"NET_MERGE_LEVEL", word, "PORT", nccl,
            "how far apart NICs may be that the topology takes as one (at most 4): LOC none, PORT "
            "ports of one card, PIX below one PCIe switch, PXB below several, PHB of one CPU, SYS "
            "of one host; a topology file with GPUs stands as it is unless this is set",
            any, any, "LOC PORT PIX PXB PHB SYS"},
    Setting{"NET_MERGE_POLICY", word, "ALL", nccl,
            "RAIL: only NICs of the same rail, as the topology file says, are taken as one", any,
            any, "ALL RAIL"},
    Setting{"NSOCKS_PERTHREAD", integer, "-2", nccl,
            "sockets of a connection for each thread that drives it, helpers and the proxy's; at "
            "most 64 in all; -2: 8 on a NIC of Amazon's cloud, else 1",
            -2, 64},
    Setting{"NVB_DISABLE", flag, "0", nccl,
            "1: never relay between two GPUs through memory of a third one that has NVLink to both "
            "where they have none to each other"},
    Setting{"NVLS_ENABLE", flag, "1", nccl, "0: never use NVLink SHARP multicast"},
    Setting{"P2P_CHECK", flag, "1", false,
            "0: use GPU peer access without trying each path when a communicator is created"},
    Setting{"P2P_DISABLE", flag, "0", nccl, "1: never use direct GPU peer access"},
    Setting{"P2P_EXCLUDE", text, "", false,
            "pairs that never access each other's GPU memory, of ranks (0-1) or of GPUs "
            "(0000:1b:00.0-0000:43:00.0), parted by commas"},
    Setting{"P2P_LEVEL", word, "", nccl, "the farthest path over which GPUs access each other", any,
            any, "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS 0 1 2 3 4 5"},
    Setting{
        "P2P_READ_ENABLE", flag, "0", nccl,
        "1: in Simple, what goes from GPU to GPU stays in the sender's memory, and the receiver "
        "reads it there (read mode), unless a third GPU is in between; the same on all ranks"},
    Setting{"PROTO", text, "", nccl,
            "protocols to choose from: Simple, LL, LL128, written as CCL_ALGO is"},
    Setting{
        "PXN_DISABLE", flag, "0", nccl,
        "1: Auto never sends messages of AllToAll for another host by way of the rank here that "
        "is on the receiver's rail, and the topology no GPU's data through one closer to the "
        "NIC"},
    Setting{
        "REPORT_SIGNAL", integer, "0", false,
        "number of a signal on which a process logs what all ranks do and who is behind; 0: none",
        0, 64},
    Setting{"RUNTIME_CONNECT", flag, "1", nccl,
            "0: Pairwise on CPU ranks connects every pair of ranks when it is created; 1: a pair "
            "is connected by the first call that has a message for it"},
    Setting{"SHM_DISABLE", flag, "0", nccl, "1: never use shared memory between processes"},
    Setting{"SOCKET_FAMILY", word, "", nccl, "address family of the connections between hosts", any,
            any, "AF_INET AF_INET6"},
    Setting{"SOCKET_IFNAME", text, "", nccl,
            "network interfaces to use: a list of prefixes of names; = before the list: whole "
            "names; ^ before it: all but these. The Socket transport spreads over up to four of "
            "them; without it, over one"},
    Setting{"SOCKET_NTHREADS", integer, "-2", nccl,
            "helper threads of the Socket transport, beside those that wait in a collective; -2: "
            "2 on a NIC of Amazon's cloud, 4 of Google's, else 0",
            -2, 16},
    Setting{"TIMEOUT", seconds, "0", false,
            "seconds without progress after which a collective fails; 0: never"},
    Setting{"TOPO_DUMP_FILE", text, "", nccl, "XML file to which the topology found is written"},
    Setting{"TOPO_FILE", text, "", nccl, "XML file with a topology, in NCCL's schema"},
    Setting{"TRANSPORT", text, "", false,
            "transports to choose from: a list of names, or ^ and a list to leave out"},
    Setting{"TUNE_FILE", text, "", false,
            "JSON file of measurements by ccl_perf --tune, which Auto chooses by; the same on all "
            "ranks"},
};
static_assert(std::is_sorted(table.begin(), table.end(),
                             [](const Setting& a, const Setting& b) { return a.name < b.name; }));

// Of other programs: find_package looks for ccl at CCL_ROOT, and the scripts of oneAPI, whose
// library has the same prefix, leave all four in a shell.
constexpr std::array<std::string_view, 4> not_ours{"ATL_TRANSPORT_PATH", "CONFIGURATION",
                                                   "CONFIGURATION_PATH", "ROOT"};

// NCCL's own initial value of what is a flag here: as if it were not set.
bool is_automatic(const Setting& s, std::string_view value) {
  return (s.name == "NVLS_ENABLE" && value == "2") || (s.name == "CUMEM_ENABLE" && value == "-2");
}

std::string upper(std::string_view s) {
  std::string out{s};
  for (char& c : out) c = char(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

struct Given {
  std::string variable;  // "CCL_DEBUG", "NCCL_DEBUG"; empty: the initial value
  std::string value;
};

std::optional<Given> given(const Setting& s) {
  const auto look = [&](std::string_view prefix) -> std::optional<Given> {
    std::string variable = fmt::format("{}{}", prefix, s.name);
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr || *value == 0) return {};  // empty counts as not set
    return Given{std::move(variable), value};
  };
  if (auto mine = look("CCL_")) return mine;
  if (!s.nccl) return {};
  auto theirs = look("NCCL_");
  if (theirs && is_automatic(s, theirs->value)) return {};
  return theirs;
}

std::optional<Index> parse_integer(std::string_view v) {
  Index n = 0;
  const auto [end, ec] = std::from_chars(v.data(), v.data() + v.size(), n);
  if (ec != std::errc{} || end != v.data() + v.size()) return {};
  return n;
}

// Calls `see` with each piece of the list; whether all calls were true.
template <class See>
bool all_pieces(std::string_view list, char end, See see) {
  for (;;) {
    const size_t at = std::min(list.find(end), list.size());
    if (!see(list.substr(0, at))) return false;
    if (at == list.size()) return true;
    list.remove_prefix(at + 1);
  }
}

// Names of algorithms and protocols may be a program's own, those of collectives may not.
bool is_choice(std::string_view v) {
  constexpr std::string_view collectives =
      " allreduce allgather reducescatter broadcast reduce alltoall alltoallv gather scatter "
      "sendrecv send recv allreducerows ";
  return all_pieces(v, ';', [&](std::string_view piece) {
    const size_t colon = piece.find(':');
    if (colon == piece.npos) return true;
    std::string name;
    for (const char c : piece.substr(0, colon)) {
      if (c != '_' && c != ' ') name += char(std::tolower(static_cast<unsigned char>(c)));
    }
    return collectives.find(" " + name + " ") != collectives.npos;
  });
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

// Of what an interface or a device can be named.
bool is_nic_groups(std::string_view v) {
  const bool named = v.find_first_not_of(";,") != v.npos;
  return named && topo::parse_groups(v) && all_pieces(v, ';', [](std::string_view group) {
           return group.empty() || all_pieces(group, ',', [](std::string_view nic) {
                    return std::all_of(nic.begin(), nic.end(),
                                       [](char c) { return c > ' ' && c <= '~' && c != '/'; });
                  });
         });
}

// What a text must look like, where it is not any text.
struct Form {
  std::string_view name;
  bool (*fits)(std::string_view);
  std::string_view takes;
};
constexpr std::string_view choice =
    "a list of names, or ^ and such a list, for all collectives or behind the name of one and a "
    "colon, parted by semicolons, such as Ring,Tree;broadcast:^Tree; it knows allreduce allgather "
    "reducescatter broadcast reduce alltoall alltoallv gather scatter sendrecv";
constexpr std::array forms{
    Form{"ALGO", is_choice, choice},
    Form{
        "DEBUG_SUBSYS", is_part_list,
        "a list, parted by commas, of INIT BOOTSTRAP COLL P2P SHM NET GRAPH TUNING ENV ALLOC PROXY "
        "ALL, such as INIT,NET, or ^ and such a list"},
    Form{"IB_ADDR_RANGE", is_address_range,
         "an address and a prefix length, such as 10.1.0.0/16 or fd00::/8"},
    Form{"NET_FORCE_MERGE", is_nic_groups,
         "groups parted by semicolons, each a list of names of NICs parted by commas, with or "
         "without :port, such as mlx5_0,mlx5_1;mlx5_2:1,mlx5_3:1"},
    Form{"PROTO", is_choice, choice},
};
const Form* form_of(const Setting& s) {
  const auto* const found =
      std::find_if(forms.begin(), forms.end(), [&](const Form& f) { return f.name == s.name; });
  return found == forms.end() ? nullptr : found;
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
    case text:
      return std::string{form_of(s) == nullptr ? "any text" : form_of(s)->takes};
  }
  return "";
}

std::optional<Index> parse_bytes(std::string_view v) {
  Index unit = 1;
  if (!v.empty()) {
    switch (std::toupper(static_cast<unsigned char>(v.back()))) {
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
  char* end = nullptr;
  const double n = std::strtod(v.c_str(), &end);
  if (end != v.c_str() + v.size() || !(n >= 0) || n > 1e9) return {};
  return n;
}

bool is_word(const Setting& s, std::string_view v) {
  const std::string words = fmt::format(" {} ", s.words);
  return v.find(' ') == v.npos && words.find(fmt::format(" {} ", upper(v))) != words.npos;
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

Result<void> check(const Setting& s, const Given& g) {
  if (fits(s, g.value)) return {};
  return fail(Errc::bad_setting, fmt::format("{}={} does not fit ({}); it takes {}", g.variable,
                                             g.value, s.meaning, valid_values(s)));
}

const Setting* find(std::string_view name) {
  for (const Setting& s : table) {
    if (s.name == name) return &s;
  }
  return nullptr;
}

Result<std::string> value_of(std::string_view name, SettingKind kind) {
  const Setting* s = find(name);
  if (s == nullptr || (s->kind != kind && !(s->kind == word && kind == text))) {
    return fail(Errc::internal, fmt::format("there is no setting {} of this kind", name));
  }
  const auto g = given(*s);
  if (!g) return std::string{s->initial};
  CCL_CHECK(check(*s, *g));
  return s->kind == word ? upper(g->value) : g->value;
}

// Fewest single-letter edits from a to b.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t old = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = old;
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Setting> all_settings() {
  return table;
}

Result<void> check_settings() {
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view line{*at};
    if (!line.starts_with("CCL_")) continue;
    const std::string_view name = line.substr(4, line.find('=') - 4);
    if (find(name) != nullptr) continue;
    if (std::find(not_ours.begin(), not_ours.end(), name) != not_ours.end()) continue;
    const auto nearest =
        std::min_element(table.begin(), table.end(), [&](const Setting& a, const Setting& b) {
          return distance(a.name, name) < distance(b.name, name);
        });
    std::string names;
    for (const Setting& s : table) names += fmt::format(" CCL_{}", s.name);
    return fail(
        Errc::bad_setting,
        fmt::format("CCL_{} is set (there is no such setting); did you mean CCL_{}? There are:{}",
                    name, nearest->name, names));
  }
  for (const Setting& s : table) {
    if (const auto g = given(s)) CCL_CHECK(check(s, *g));
  }
  return {};
}

Result<bool> setting_flag(std::string_view name) {
  CCL_TRY(const std::string v, value_of(name, flag));
  return parse_integer(v) == 1;
}
Result<Index> setting_integer(std::string_view name) {
  CCL_TRY(const std::string v, value_of(name, integer));
  return parse_integer(v).value_or(0);
}
Result<Index> setting_bytes(std::string_view name) {
  CCL_TRY(const std::string v, value_of(name, bytes));
  return parse_bytes(v).value_or(0);
}
Result<double> setting_seconds(std::string_view name) {
  CCL_TRY(const std::string v, value_of(name, seconds));
  return parse_seconds(v).value_or(0);
}
Result<std::string> setting_text(std::string_view name) {
  return value_of(name, text);
}

bool setting_given(std::string_view name) {
  const Setting* s = find(name);
  return s != nullptr && given(*s).has_value();
}

}  // namespace ccl
