#include "rule.hpp"

namespace ccl::perf {
namespace {

bool has_ring(const Case& what) {
  for (const Entry& entry : all_entries()) {
    if (entry.op == what.op && entry.algo == "Ring") return true;
  }
  return false;
}

// On 4 H200 over NVLink, LL won below 64 KiB, LL128 up to 8 MiB, Simple above (see
// benchmarks/gpu/README.md).
Choice choose_on_gpus(const Case& what) {
  constexpr Index kib = 1024;
  Choice choice{what.algo, what.proto};
  if (choice.algo == "auto") choice.algo = has_ring(what) ? "Ring" : "Pairwise";
  if (choice.proto == "auto") {
    choice.proto = what.bytes < 64 * kib ? "LL" : what.bytes <= 8192 * kib ? "LL128" : "Simple";
  }
  return choice;
}

}  // namespace

// On CPU lanes Simple was the fastest protocol from 64 B up on 2 and 4 ranks, and LL and LL128
// within a microsecond of it below: a core publishes a count as cheaply as a flag. Recursive
// doubling won against the ring up to 16 KiB (2 to 4 times on 4 ranks), and lost from 128 KiB on.
Choice choose(const Case& what) {
  if (what.device == Device::cuda) return choose_on_gpus(what);
  constexpr Index small = Index{16} << 10;  // bytes
  Choice choice{what.algo, what.proto};
  if (choice.algo == "auto") {
    choice.algo = has_ring(what) ? "Ring" : "Pairwise";
    const Choice doubling{"Doubling", choice.proto};
    if (what.op == "all_reduce" && what.bytes <= small && takes(doubling, what.redop)) {
      choice.algo = doubling.algo;
    }
  }
  if (choice.proto == "auto") choice.proto = "Simple";
  return choice;
}

bool runs_on_gpus(const Choice& choice) {
  return choice.algo != "Doubling";  // see CMakeLists.txt
}

bool takes(const Choice& choice, RedOp redop) {
  return choice.algo != "Doubling" || (redop != RedOp::avg && redop != RedOp::mulsum);
}

std::vector<Choice> choices(const std::string& op, const std::string& algo,
                            const std::string& proto) {
  std::vector<Choice> found;
  if (algo != "all" && proto != "all") return found;
  const std::string only_algo = algo == "auto" ? choose({.op = op}).algo : algo;
  for (const Entry& entry : all_entries()) {
    if (entry.op == op && (algo == "all" || entry.algo == only_algo) &&
        (proto == "all" || proto == "auto" || entry.proto == proto)) {
      found.push_back({std::string{entry.algo}, std::string{entry.proto}});
    }
  }
  return found;
}

}  // namespace ccl::perf
