#include "conduct.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "group.hpp"
#include "report.hpp"
#include "rounds.hpp"
#include "tune.hpp"

namespace ccl::perf {
namespace {

constexpr double probe_s = 60;  // seconds; a driver can start slowly
std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

const gpu::Facts& gpus() {
  static const gpu::Facts facts = [] {
    const auto asked = in_other_process<gpu::Facts>(probe_s, [] { return gpu::look(); });
    if (asked) return *asked;
    gpu::Facts none;
    put(none.why_none, "the driver does not answer: " + asked.error().what);
    return none;
  }();
  return facts;
}

int conduct(const Options& options) {
  const auto refuse = [](const std::string& what) {
    fmt::print(stderr, "ccl_perf: {}\n", what);
    return 2;
  };
  const gpu::Facts& facts = gpus();
  if (facts.count == 0) {
    return refuse(fmt::format("there is no GPU ({}); use --device cpu", facts.why_none));
  }
  const int ranks = options.ranks == 0 ? facts.count : options.ranks;
  if (ranks > facts.count) {
    return refuse(
        fmt::format("--ranks {} is more than there are GPUs ({}), and every rank has one "
                    "of its own",
                    ranks, facts.count));
  }
  if (options.root < 0 || options.root >= ranks) {
    return refuse(fmt::format("-r {} is no rank (there are {})", options.root, ranks));
  }
  Machine machine;
  machine.gpus = facts.count;
  machine.model = facts.model;
  machine.driver = facts.driver;
  machine.driver_cuda = cuda_version(facts.driver_cuda);
  machine.runtime_cuda = cuda_version(facts.runtime_cuda);
  std::string library;
  if (options.compare == "nccl") {
    const auto nccl =
        in_other_process<NcclFound>(probe_s, [&] { return find_nccl(options.nccl_library); });
    if (!nccl) return refuse(fmt::format("opening NCCL failed ({})", nccl.error().what));
    if (nccl->library[0] == 0) {
      return refuse(fmt::format("--compare nccl finds no NCCL ({})", nccl->why_none));
    }
    library = nccl->library;
    machine.nccl = fmt::format("NCCL {}.{}.{}", nccl->version / 10000, nccl->version / 100 % 100,
                               nccl->version % 100);
    machine.nccl_library = library;
  }
  Report report{options, ranks, true, &machine};
  bool well = true;
  for (const int ctas : options.ctas) {
    Options limited = options;
    limited.ctas = {ctas};
    if (options.ctas.size() > 1 || ctas != 0) {
      report.finding(ctas == 0                   ? "the default limit on blocks"
                     : ctas == Options::all_ctas ? "no limit on blocks"
                                                 : fmt::format("at most {} blocks", ctas));
    }
    const Measured measured = measure_in_rounds(limited, ranks, library, report);
    well = measured.well && well;
    if (options.tune.empty()) continue;
    std::vector<Row> rows;
    for (const Row& row : report.rows()) {
      const bool whole = row.shape.bytes != measured.unfinished;
      if (row.ctas == ctas && whole) rows.push_back(row);
    }
    const auto written = write_tuning(options, measured.where, machine.model, rows);
    if (!written) return refuse(written.error().what);
  }
  return report.finish() && well ? 0 : 1;
}

}  // namespace ccl::perf
