#include "option_rules.hpp"

#include <ccl/comm/launcher.hpp>
#include <ccl/detail/choose/tuning.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <vector>

#include "conduct.hpp"
#include "option_values.hpp"
#include "rival.hpp"
#include "verify.hpp"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ccl::perf {
namespace {

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

}  // namespace

void check_files(const Options& options) {
  const auto launched = detect_launch();
  if (options.launch == Launch::environment && launched && launched->rank > 0) return;
  check_writable(options.json, "--json");
  check_writable(options.tune, "--tune");
  check_table(options.tune);
}

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

void check_reductions(const Options& options) {
  for (const auto t : options.types) {
    for (const auto r : options.redops) {
      if (carries(t, r)) continue;
      refuse(
          fmt::format("this ccl_perf does not reduce {} with {}; configure with "
                      "-DCCL_PERF_TYPES and -DCCL_PERF_REDOPS",
                      name(t), redop_names[int(r)]));
    }
  }
}

void check_device(const Options& options, bool starts) {
  if (options.device == Device::cuda) {
    if (options.explain && traced_entries().empty()) {
      refuse(
          "--explain needs the traced forms of the compositions on GPUs, which this ccl_perf does "
          "not contain; configure with -DCCL_PERF_TRACED=all, or add --device cpu");
    }
    if (options.compare == "mpi") refuse("--compare mpi times CPU ranks; add --device cpu");
    if (options.registered) refuse("--registered is for CPU ranks; add --device cpu");
  } else {
    if (options.compare == "nccl")
      refuse("--compare nccl needs GPUs (there are none, or --device cpu)");
    if (options.ctas != std::vector<int>{0}) refuse("--ctas needs GPUs (see CCL_MAX_CTAS)");
    if (options.windows) refuse("--windows needs GPUs (there are none, or --device cpu)");
    if (options.graph != 0) refuse("--graph needs GPUs (there are none, or --device cpu)");
    if (starts && options.ranks == 0) {
      refuse("--threads and --procs need --ranks, the number to start");
    }
  }
}

}  // namespace ccl::perf
