#include "options.hpp"

#include <ccl/comm/launcher.hpp>
#include <ccl/detail/choose/tuning.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <set>
#include <sstream>

#include "conduct.hpp"
#include "rival.hpp"
#include "side.hpp"
#include "verify.hpp"
#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ccl::perf {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  fmt::print(stderr, "ccl_perf: {}\n", what);
  std::exit(2);
}

std::string joined(const std::set<std::string>& words) {
  std::string all;
  for (const auto& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

std::string lower(std::string text) {
  for (char& c : text) c = char(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

constexpr int max_ranks = 4096;  // ranks that one ccl_perf starts
// limit on the calls of one measurement, and on the measurements of a size
constexpr int max_calls = 1 << 20;

/// Parses a size such as "8", "64K", "4M" or "1G".
Index parse_bytes(const std::string& text, const char* option) {
  std::size_t used = 0;
  double number = -1;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  std::string unit = lower(text.substr(used));
  if (unit.size() > 1 && unit.back() == 'b') unit.pop_back();
  const int shift = unit.empty() || unit == "b" ? 0
                    : unit == "k"               ? 10
                    : unit == "m"               ? 20
                    : unit == "g"               ? 30
                                                : -1;
  const double bytes = number * double(Index{1} << std::max(shift, 0));
  constexpr double most = double(Index{1} << 50);  // more than the memory of any machine
  if (!(bytes >= 0 && bytes <= most) || shift < 0) {
    refuse(fmt::format("{} cannot be \"{}\" (it is no size{}); write 8, 64K, 4M or 1G", option,
                       text, bytes > most ? " that memory holds" : ""));
  }
  return Index(bytes);
}

/// Returns the name in the table that `text` matches, without regard to case, '_' and '-'.
std::string find_name(const std::set<std::string>& names, const std::string& text,
                      const char* what) {
  const auto plain = [](std::string s) {
    s = lower(std::move(s));
    std::erase_if(s, [](char c) { return c == '_' || c == '-'; });
    return s;
  };
  for (const auto& name : names) {
    if (plain(name) == plain(text)) return name;
  }
  refuse(fmt::format("there is no {} \"{}\"; there are: {}", what, text, joined(names)));
}

std::vector<DataType> parse_types(const std::string& text, bool reduces) {
  std::vector<DataType> types;
  if (text != "all") {
    std::string name = text;
    if (name == "fp16" || name == "fp32" || name == "fp64") name = "float" + name.substr(2);
    if (name == "bf16") name = "bfloat16";
    const auto type = parse_data_type(name);
    if (!type)
      refuse(fmt::format("-d cannot be {}; it is one of: all, {}", text, data_type_names()));
    return {*type};
  }
  for (int i = 0; i < data_type_count; ++i) {
    if (!reduces || carries(DataType(i), RedOp::sum)) types.push_back(DataType(i));
  }
  return types;
}

std::vector<RedOp> parse_redops(const std::string& text, DataType type) {
  std::vector<RedOp> redops;
  for (int i = 0; i < redop_count; ++i) {
    if (text == redop_names[i] || (text == "all" && carries(type, RedOp(i)))) {
      redops.push_back(RedOp(i));
    }
  }
  if (redops.empty()) {
    refuse(fmt::format("-o cannot be {}; it is one of: all, {}", text,
                       joined(std::set<std::string>(redop_names, redop_names + redop_count))));
  }
  return redops;
}

std::vector<std::string> parse_modes(const std::string& text) {
  std::set<std::string> known;
  for (const Mode& mode : nccl_modes({})) known.insert(mode.name);
  std::vector<std::string> modes;
  std::istringstream words{text};
  for (std::string word; std::getline(words, word, ',');) {
    if (!word.empty()) modes.push_back(find_name(known, word, "mode of NCCL"));
  }
  return modes;
}

std::vector<int> parse_ctas(const std::string& text) {
  std::vector<int> ctas;
  std::istringstream words{text.empty() ? "default" : text};
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "default" || word == "all") {
      ctas.push_back(word == "all" ? Options::all_ctas : 0);
      continue;
    }
    char* end = nullptr;
    const long number = std::strtol(word.c_str(), &end, 10);
    if (end == word.c_str() || *end != 0 || number < 1 || number > Options::all_ctas) {
      refuse(fmt::format(
          "--ctas cannot be {}; write numbers, \"default\" and \"all\", as 4,8,16,all", text));
    }
    ctas.push_back(int(number));
  }
  return ctas;
}

/// Refuses a file that cannot be written, before anything is measured. An existing file is not
/// changed.
void check_writable(const std::string& path, const char* option) {
  if (path.empty()) return;
  struct stat is {};
  const bool there = ::stat(path.c_str(), &is) == 0;
  if (there && !S_ISREG(is.st_mode) && !S_ISDIR(is.st_mode)) return;  // a reader waits at a pipe
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) {
    refuse(fmt::format("{} cannot be {} ({}); name a file that can be written", option, path,
                       std::strerror(errno)));
  }
  ::close(file);
  if (!there) ::unlink(path.c_str());
}
/// Refuses an existing file that is not a table, because rows are added to it.
void check_table(const std::string& path) {
  if (path.empty() || ::access(path.c_str(), F_OK) != 0) return;
  const auto table = detail::TuningTable::read(path);
  if (!table) {
    refuse(fmt::format("--tune cannot be {} ({}); name another file, or remove it", path,
                       table.error().what));
  }
}
/// Checks files on the first rank only if a launcher started the ranks. Only that rank writes
/// files, and others can lack the directory.
void check_files(const Options& options) {
  const auto launched = detect_launch();
  if (options.launch == Launch::environment && launched && launched->rank > 0) return;
  check_writable(options.json, "--json");
  check_writable(options.tune, "--tune");
  check_table(options.tune);
}

/// Refuses options that would have no effect.
void refuse_unused(const Options& options, bool threads) {
  const bool nccl = !options.nccl_modes.empty() || !options.nccl_algo.empty() ||
                    !options.nccl_proto.empty() || options.compare == "nccl";
  if (nccl && options.compare != "nccl") {
    refuse("--nccl-modes, --nccl-algo and --nccl-proto need --compare nccl");
  }
  if (options.hosts > 0 && threads) {
    refuse("--hosts needs ranks that are processes (threads of one are on one host)");
  }
  if (options.ranks == 0) return;
  if (options.hosts > options.ranks) {
    refuse(
        fmt::format("--hosts {} is more than there are ranks ({})", options.hosts, options.ranks));
  }
  if (options.root < 0 || options.root >= options.ranks) {
    refuse(fmt::format("-r {} is no rank (there are {})", options.root, options.ranks));
  }
}

/// Refuses operations without an in-place form.
void check_in_place(const Options& options, const std::set<std::string>& ops) {
  const auto contains = [](const std::string& op) {
    return Shape::of(op, 8, 4, 2, 0, 0).in_place().has_value();
  };
  if (!options.in_place || contains(options.op)) return;
  std::vector<std::string> names;
  std::copy_if(ops.begin(), ops.end(), std::back_inserter(names), contains);
  refuse(fmt::format("{} does not run in place; --inplace is for {}", options.op,
                     fmt::join(names, ", ")));
}

/// Returns the device. The machine is queried only if no option decides it.
Device resolve_device(const Options& options, const std::string& given, bool threads) {
  if (given == "cpu" || options.compare == "mpi") return Device::cpu;
  const auto launched = detect_launch();
  const bool by_launcher = options.launch == Launch::environment && !threads &&
                           (!launched || launched->launcher != "alone" || rival::name() != nullptr);
  if (given == "auto") {
    if (!gpu::compiled() || by_launcher) return Device::cpu;
    return gpus().count > 0 ? Device::cuda : Device::cpu;
  }
  if (!gpu::compiled()) {
    refuse(
        "--device cuda: this ccl_perf has no device code (it was built without CUDA); configure "
        "with -DCCL_ENABLE_CUDA=ON, or use --device cpu");
  }
  if (by_launcher) {
    refuse(
        "--device cuda does not run under a launcher (ccl_perf starts the ranks of one machine "
        "itself); run it alone");
  }
  return Device::cuda;
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  std::string begin = "8", end = "64M", type = "float", redop = "sum", compare, device = "auto",
              modes, ctas;
  std::string slot_bytes = "0";
  bool threads = false, processes = false;

  CLI::App app{
      "Times and checks ccl's collectives. Alone it starts --ranks ranks; under mpirun, srun or "
      "torchrun it is one of theirs."};
  app.add_option("collective", options.op, "all_reduce, all_gather, reduce_scatter, ...")
      ->capture_default_str();
  app.add_option("-b,--begin", begin, "smallest size, in bytes (K, M, G)")->capture_default_str();
  app.add_option("-e,--end", end, "largest size")->capture_default_str();
  app.add_option("-f,--factor", options.factor, "from one size to the next")
      ->check(CLI::Range(1.01, 1e6))
      ->capture_default_str();
  app.add_option("-n,--iterations", options.iterations,
                 "calls of one measurement; 0: as many as give a stable time")
      ->check(CLI::Range(0, max_calls));
  app.add_option("-w,--warmup", options.warmup, "calls before each measurement")
      ->check(CLI::Range(0, max_calls))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "measurements of each size; the median counts")
      ->check(CLI::Range(1, max_calls))
      ->capture_default_str();
  app.add_option("-d,--type", type, "element type, or all")->capture_default_str();
  app.add_option("-o,--redop", redop, "reduction, or all")->capture_default_str();
  app.add_option("-r,--root", options.root, "root rank")->capture_default_str();
  app.add_option("--hosts", options.hosts,
                 "ranks that are processes take themselves to be on so many hosts, block by block")
      ->check(CLI::Range(1, max_ranks));
  app.add_option("--ranks", options.ranks, "ranks to start; without it, what the launcher started")
      ->check(CLI::Range(1, max_ranks));
  auto* const procs_flag = app.add_flag("--procs", processes, "ranks are processes (default)");
  app.add_flag("--threads", threads, "ranks are threads of this process")->excludes(procs_flag);
  const auto* const algo =
      app.add_option("--algo", options.algo, "Ring, Tree, Pairwise, auto, or all")
          ->capture_default_str();
  const auto* const proto =
      app.add_option("--proto", options.proto, "Simple, LL, LL128, Sentinel, auto, or all")
          ->capture_default_str();
  app.add_option("--transport", options.transport,
                 "loopback, shm, ib, plugin, socket (a value of CCL_TRANSPORT); default: the first "
                 "that works");
  app.add_option("--device", device, "where the data is; auto: on GPUs if there are any")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--graph", options.graph,
                 "GPUs: calls of one CUDA graph, of which replays are timed; 0: plain launches")
      ->check(CLI::Range(0, max_calls))
      ->capture_default_str();
  app.add_option("-c,--check", options.check, "1: check every element; 0: none")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_flag(
      "--inplace", options.in_place,
      "send and receive buffers are one memory, as far as the collective may have them so");
  app.add_flag("--windows", options.windows, "GPUs: ccl's buffers are registered windows");
  app.add_flag(
      "--registered", options.registered,
      "CPU ranks: ccl's buffers are registered, for networks that move them without a copy");
  app.add_flag("--deterministic", options.deterministic,
               "choose as Deterministic does: sums have one order");
  app.add_flag("--explain", options.explain,
               "where the time of each size goes, beside the limit of the link");
  app.add_option("--json", options.json, "file for the results");
  app.add_option("--tune", options.tune,
                 "measure all compositions, and write the table that CCL_TUNE_FILE names");
  app.add_option("--ctas", ctas,
                 "GPUs: most blocks of a collective, as 4,8,16,all: a table for each");
  app.add_option("--compare", compare,
                 "mpi or nccl: time its collective in turn with ccl's on the same ranks or GPUs")
      ->check(CLI::IsMember({"mpi", "nccl"}));
  app.add_option("--nccl-modes", modes,
                 "of plain,registered,windows,windows-32,windows-ce; default: all");
  app.add_option(
      "--nccl-library", options.nccl_library,
      "path of libnccl.so.2; default: PERF_NCCL_LIBRARY, else the system's, else Python's");
  app.add_option("--nccl-algo", options.nccl_algo, "pins NCCL_ALGO");
  app.add_option("--nccl-proto", options.nccl_proto, "pins NCCL_PROTO");
  app.add_option("--timeout", options.timeout_s, "GPUs: seconds of one step, after which it failed")
      ->check(CLI::Range(1.0, 1e5))
      ->capture_default_str();
  app.add_option("--limit", options.limit_s, "GPUs: seconds after which no further size is begun")
      ->check(CLI::Range(1e-3, 1e9))
      ->capture_default_str();
  app.add_option("--slot-bytes", slot_bytes, "of a wire's slot; 0: the composition's choice");
  app.add_option("--slots", options.slots, "of a wire");
  app.add_option("--channels", options.channels, "independent parts of a message");
  app.add_option("--slice-steps", options.slice_steps, "slots of a slice");
  app.add_option("--chunk-steps", options.chunk_steps, "slots of a chunk");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }

  std::set<std::string> ops, algos{"auto", "all"}, protos{"auto", "all"};
  for (const Entry& entry : all_entries()) ops.emplace(entry.op);
  options.op = find_name(ops, options.op, "collective");
  for (const Entry& entry : all_entries()) {
    if (entry.op == options.op) algos.emplace(entry.algo), protos.emplace(entry.proto);
  }
  options.algo = find_name(algos, options.algo, "algorithm of this collective");
  options.proto = find_name(protos, options.proto, "protocol");

  if (options.deterministic && algo->count() + proto->count() > 0) {
    refuse("--deterministic chooses the composition; leave --algo and --proto out");
  }
  if (!options.tune.empty()) {
    if (options.deterministic)
      refuse("--tune measures all compositions; leave --deterministic out");
    if (algo->count() + proto->count() > 0) {
      refuse("--tune measures all compositions; leave --algo and --proto out");
    }
    options.algo = options.proto = "all";
  }
  options.ctas = parse_ctas(ctas);
  options.begin = parse_bytes(begin, "-b");
  options.end = parse_bytes(end, "-e");
  options.slot_bytes = parse_bytes(slot_bytes, "--slot-bytes");
  check_in_place(options, ops);
  // MPI_Bcast has one buffer.
  if (compare == "mpi" && options.op == "broadcast") options.in_place = true;
  if (options.begin > options.end) refuse("-b is above -e, so there is no size to measure");
  const bool reduces =
      options.op == "all_reduce" || options.op == "reduce" || options.op == "reduce_scatter";
  options.types = parse_types(lower(type), reduces);
  options.redops = parse_redops(lower(redop), options.types.front());
  if (reduces) {
    for (const auto t : options.types) {
      for (const auto r : options.redops) {
        if (carries(t, r)) continue;
        refuse(
            fmt::format("this ccl_perf does not reduce {} with {}; configure with "
                        "-DCCL_PERF_TYPES and -DCCL_PERF_REDOPS",
                        name(t), redop_names[int(r)]));
      }
    }
  } else {
    options.redops = {RedOp::sum};
  }
  options.transport = lower(options.transport);
  if (options.transport == "auto") options.transport.clear();
  options.compare = compare;
  // PERF_NCCL_LIBRARY is a setting of this program, not of ccl.
  if (const char* const library = std::getenv("PERF_NCCL_LIBRARY")) {
    if (options.nccl_library.empty()) options.nccl_library = library;
    ::unsetenv("PERF_NCCL_LIBRARY");
  }
  options.nccl_modes = parse_modes(modes);
  options.nccl_algo = lower(options.nccl_algo);
  options.nccl_proto = lower(options.nccl_proto);
  if (threads || processes || options.ranks > 0) {
    options.launch = threads ? Launch::threads : Launch::processes;
  }
  refuse_unused(options, threads);
  options.device = resolve_device(options, device, threads);
  if (options.device == Device::cuda) {
    if (options.explain && traced_entries().empty()) {
      refuse(
          "--explain needs the traced forms of the compositions on GPUs, which this ccl_perf does "
          "not contain; configure with -DCCL_PERF_TRACED=all, or add --device cpu");
    }
    if (options.launch == Launch::environment) options.launch = Launch::processes;
    if (compare == "mpi") refuse("--compare mpi times CPU ranks; add --device cpu");
    if (options.registered) refuse("--registered is for CPU ranks; add --device cpu");
  } else {
    if (compare == "nccl") refuse("--compare nccl needs GPUs (there are none, or --device cpu)");
    if (options.ctas != std::vector<int>{0}) refuse("--ctas needs GPUs (see CCL_MAX_CTAS)");
    if (options.windows) refuse("--windows needs GPUs (there are none, or --device cpu)");
    if (options.graph != 0) refuse("--graph needs GPUs (there are none, or --device cpu)");
    if ((threads || processes) && options.ranks == 0) {
      refuse("--threads and --procs need --ranks, the number to start");
    }
  }
  check_files(options);
  for (int i = 0; i < argc; ++i) options.command += (i == 0 ? "" : " ") + std::string{argv[i]};
  return options;
}

}  // namespace ccl::perf
