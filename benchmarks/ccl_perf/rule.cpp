#include "rule.hpp"

namespace ccl::perf {

// On CPU lanes Simple was the fastest protocol from 64 B up on 2 and 4 ranks, and LL and LL128
// within a microsecond of it below: a core publishes a count as cheaply as a flag. Recursive
// doubling won against the ring up to 16 KiB (2 to 4 times on 4 ranks), and lost from 128 KiB on.
Choice choose(const Case& what) {
  constexpr Index small = Index{16} << 10;  // bytes
  Choice choice{what.algo, what.proto};
  if (choice.algo == "auto") {
    bool has_ring = false;
    for (const Entry& entry : all_entries()) {
      has_ring = has_ring || (entry.op == what.op && entry.algo == "Ring");
    }
    choice.algo = has_ring ? "Ring" : "Pairwise";
    const Choice doubling{"Doubling", choice.proto};
    if (what.op == "all_reduce" && what.bytes <= small && takes(doubling, what.redop)) {
      choice.algo = doubling.algo;
    }
  }
  if (choice.proto == "auto") choice.proto = "Simple";
  return choice;
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
