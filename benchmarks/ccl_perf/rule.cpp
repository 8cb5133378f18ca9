#include "rule.hpp"

#include <ccl/choice.hpp>
#include <ccl/settings.hpp>

#include "gpu.hpp"

namespace ccl::perf {
namespace {

bool over_peers(const std::string& algo) {
  return algo == "OneShot" || algo == "TwoShot" || algo == "Direct";
}
bool has(const Case& what, const char* algo) {
  for (const Entry& entry : all_entries()) {
    if (entry.op == what.op && entry.algo == algo) return true;
  }
  return false;
}

// On 4 H200 over NVLink (see benchmarks/gpu/README.md): everybody to everybody won while a message
// takes less time on the wire than the second hop costs, two hops up to some megabytes, the ring
// above. Over wires LL won below 64 KiB, LL128 up to 8 MiB, Simple above.
Choice choose_on_gpus(const Case& what) {
  constexpr Index kib = 1024, mib = 1024 * kib;
  Choice choice{what.algo, what.proto};
  const bool peers = gpu::communicator_device(0) >= 0 && what.transport.empty() &&
                     !setting_flag("P2P_DISABLE").value_or(false) &&
                     (what.ranks == 2 || what.ranks == 4 || what.ranks == 8);
  if (choice.algo == "auto" && peers) {
    const bool flags = choice.proto != "Simple", plain = choice.proto == "auto" || !flags;
    const bool to_all = what.op == "gather" || what.op == "scatter";
    const Index one = what.op == "all_reduce" || what.op == "broadcast" || what.op == "reduce"
                          ? 768 * kib / what.ranks
                      : what.op == "send_recv" ? mib
                      : to_all                 ? mib
                                               : 8 * mib;
    const Index two = what.ranks * mib * 3 / 2;
    if (flags && has(what, "OneShot") && what.bytes <= one) {
      choice.algo = "OneShot";
    } else if (flags && has(what, "TwoShot") && what.bytes <= two) {
      choice.algo = "TwoShot";
    } else if (plain && has(what, "Direct")) {
      choice.algo = "Direct";
    }
  }
  if (choice.algo == "auto") choice.algo = has(what, "Ring") ? "Ring" : "Pairwise";
  if (choice.proto == "auto" && choice.algo == "Direct") choice.proto = "Simple";
  if (choice.proto == "auto" && over_peers(choice.algo)) choice.proto = "LL128";
  if (choice.proto == "auto") {
    choice.proto = what.bytes < 64 * kib ? "LL" : what.bytes <= 8 * mib ? "LL128" : "Simple";
  }
  return choice;
}

// On 2 and 4 ranks of 2 cores, over shared memory and TCP, recursive doubling took up to 64 KiB at
// most the ring's time, often half of it; Bruck's all-gather did up to 128 KiB. A core publishes a
// count as cheaply as a flag, so Simple wins at all sizes.
Choice choose_on_cpus(const Case& what) {
  constexpr Index kib = 1024;
  // What a size prefers, best first. The first that is there and allowed runs.
  std::vector<std::string> algos;
  if (what.op == "all_reduce" && what.bytes <= 64 * kib) algos.push_back("Doubling");
  if (what.op == "all_gather" && what.bytes <= 128 * kib) algos.push_back("Bruck");
  for (const char* name : {"Ring", "Pairwise", "Tree", "Doubling", "Bruck"}) algos.push_back(name);
  if (what.algo != "auto") algos = {what.algo};
  std::vector<std::string> protos{"Simple", "LL", "LL128"};
  if (what.proto != "auto") protos = {what.proto};
  for (const auto& algo : algos) {
    for (const auto& proto : protos) {
      const Choice choice{algo, proto};
      for (const Entry& entry : all_entries()) {
        if (entry.op == what.op && entry.algo == algo && entry.proto == proto &&
            takes(choice, what.redop) && may_compose(what.op, algo, proto)) {
          return choice;
        }
      }
    }
  }
  return {algos.front(), protos.front()};  // its creation says why not
}

}  // namespace

Choice choose(const Case& what) {
  return what.device == Device::cuda ? choose_on_gpus(what) : choose_on_cpus(what);
}

bool runs_on_gpus(const Choice& choice) {
  return choice.algo != "Doubling" && choice.algo != "Bruck";  // see CMakeLists.txt
}

bool takes(const Choice& choice, RedOp redop) {
  return choice.algo != "Doubling" || (redop != RedOp::avg && redop != RedOp::mulsum);
}

std::vector<Choice> choices(const std::string& op, const std::string& algo,
                            const std::string& proto, Device device) {
  const bool peers = device == Device::cuda && gpu::communicator_device(0) >= 0;
  std::vector<Choice> found;
  if (algo != "all" && proto != "all") return found;
  const std::string only_algo = algo == "auto" ? choose({.op = op}).algo : algo;
  for (const Entry& entry : all_entries()) {
    if (over_peers(std::string{entry.algo}) && !peers) continue;
    if (entry.op == op && (algo == "all" || entry.algo == only_algo) &&
        (proto == "all" || proto == "auto" || entry.proto == proto) &&
        may_compose(op, entry.algo, entry.proto)) {
      found.push_back({std::string{entry.algo}, std::string{entry.proto}});
    }
  }
  return found;
}

}  // namespace ccl::perf
