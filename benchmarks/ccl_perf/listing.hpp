#pragma once

#include <string>
#include <vector>

#include "options.hpp"

namespace ccl::perf {

/// An algorithm and a protocol, by name; "auto" leaves one to ccl.
struct Choice {
  std::string algo, proto;
  std::string name() const { return algo + "/" + proto; }
  bool is_open() const { return algo == "auto" || proto == "auto"; }
};

/// Whether it has kernels.
bool runs_on_gpus(const Choice& choice);

/// Whether an algorithm takes that reduction.
bool takes(const Choice& choice, RedOp redop);

/// Where "all" stands for the algorithm or the protocol: everything that it stands for. Else
/// nothing: the choice is up to ccl.
std::vector<Choice> choices(const std::string& op, const std::string& algo,
                            const std::string& proto, Device device, bool windows);

}  // namespace ccl::perf
