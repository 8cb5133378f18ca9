#include "options.hpp"

#include <cstdlib>
#include <set>
#include <string>

#include "option_rules.hpp"
#include "option_values.hpp"
#include <CLI/CLI.hpp>

namespace ccl::perf {
namespace {

constexpr int max_ranks = 4096;  // ranks that one ccl_perf starts
// limit on the calls of one measurement, and on the measurements of a size
constexpr int max_calls = 1 << 20;

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
    check_reductions(options);
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
  check_device(options, threads || processes);
  if (options.device == Device::cuda && options.launch == Launch::environment) {
    options.launch = Launch::processes;
  }
  check_files(options);
  for (int i = 0; i < argc; ++i) options.command += (i == 0 ? "" : " ") + std::string{argv[i]};
  return options;
}

}  // namespace ccl::perf
