#include "listing.hpp"

#include <ccl/choice.hpp>

#include "gpu.hpp"

namespace ccl::perf {
namespace {
bool over_peers(const std::string& algo) {
  return algo == "OneShot" || algo == "TwoShot" || algo == "Direct" || algo == "CopyEngine";
}
bool wants_windows(const std::string& algo) {
  return algo == "WindowCopies" || algo == "ZeroSmCopies";
}
}  // namespace

bool runs_on_gpus(const Choice& choice) {
  return choice.algo != "Doubling" && choice.algo != "Bruck";  // see CMakeLists.txt
}

bool takes(const Choice& choice, RedOp redop) {
  if (choice.algo == "CopyEngine") return redop != RedOp::mulsum;
  return choice.algo != "Doubling" || (redop != RedOp::avg && redop != RedOp::mulsum);
}

std::vector<Choice> choices(const std::string& op, const std::string& algo,
                            const std::string& proto, Device device, bool windows) {
  const bool peers = device == Device::cuda && gpu::communicator_device(0) >= 0;
  std::vector<Choice> found;
  if (algo != "all" && proto != "all") return found;
  for (const Entry& entry : all_entries()) {
    if (over_peers(std::string{entry.algo}) && !peers) continue;
    if (wants_windows(std::string{entry.algo}) && !(peers && windows)) continue;
    if (entry.op == op && (algo == "all" || algo == "auto" || entry.algo == algo) &&
        (proto == "all" || proto == "auto" || entry.proto == proto) &&
        may_compose(op, entry.algo, entry.proto)) {
      found.push_back({std::string{entry.algo}, std::string{entry.proto}});
    }
  }
  return found;
}

}  // namespace ccl::perf
