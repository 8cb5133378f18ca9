#include "listing.hpp"

#include <ccl/detail/base/selection.hpp>
#include <ccl/proto/sentinel.hpp>

#include "gpu.hpp"

namespace ccl::perf {
namespace {
bool over_peers(const std::string& algo) {
  return algo == "OneShot" || algo == "TwoShot" || algo == "Direct" || algo == "CopyEngine";
}
bool wants_windows(const std::string& algo) {
  return algo == "WindowCopies" || algo == "ZeroSmCopies";
}
/// True if the inner level of the algorithm addresses peer memory.
bool peers_inside(const std::string& algo) {
  return algo.starts_with("Hierarchical-OneShot") || algo.starts_with("Hierarchical-Direct");
}
}  // namespace

bool runs_on_gpus(const Choice& choice) {
  return choice.algo != "Doubling" && choice.algo != "Halving" &&
         choice.algo != "Bruck";  // see CMakeLists.txt
}

bool supports_reduction(const Choice& choice, DataType type, RedOp redop) {
  if (choice.proto == "Sentinel") {
    return with_type(type, [&]<class T>(TypeTag<T>) {
      return (redop == RedOp::sum && Sentinel::supports_reduction<Sum, T>) ||
             (redop == RedOp::avg && Sentinel::supports_reduction<Avg, T>) ||
             (redop == RedOp::mulsum && Sentinel::supports_reduction<PreMulSum, T>);
    });
  }
  if (choice.algo == "CopyEngine") return redop != RedOp::mulsum;
  return choice.algo != "Doubling" || (redop != RedOp::avg && redop != RedOp::mulsum);
}

std::vector<Choice> choices(const std::string& op, const std::string& algo,
                            const std::string& proto, Device device, Surroundings where) {
  const bool peers = device == Device::cuda && gpu::communicator_device(0) >= 0;
  std::vector<Choice> found;
  if (algo != "all" && proto != "all") return found;
  for (const Entry& entry : all_entries()) {
    const std::string name{entry.algo};
    if ((over_peers(name) && !(peers && where.one_host)) || (peers_inside(name) && !peers))
      continue;
    if (wants_windows(name) && !(peers && where.one_host && where.windows)) continue;
    if (entry.op == op && (algo == "all" || algo == "auto" || entry.algo == algo) &&
        (proto == "all" || proto == "auto" || entry.proto == proto) &&
        detail::may_compose(op, entry.algo, entry.proto)) {
      found.push_back({std::string{entry.algo}, std::string{entry.proto}});
    }
  }
  return found;
}

}  // namespace ccl::perf
