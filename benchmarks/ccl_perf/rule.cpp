#include "rule.hpp"

namespace ccl::perf {

Choice choose(const Case& what) {
  Choice choice{what.algo, what.proto};
  if (choice.algo == "auto") {
    bool has_ring = false;
    for (const Entry& entry : all_entries()) {
      has_ring = has_ring || (entry.op == what.op && entry.algo == "Ring");
    }
    choice.algo = has_ring ? "Ring" : "Pairwise";
  }
  if (choice.proto == "auto") choice.proto = what.bytes <= 2048 ? "LL" : "Simple";
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
