#pragma once

#include <string>
#include <vector>

#include "options.hpp"

namespace ccl::perf {

/// An algorithm and a protocol, by name.
struct Choice {
  std::string algo, proto;
  std::string name() const { return algo + "/" + proto; }
};

/// What a choice may depend on.
struct Case {
  std::string op;
  Index bytes = 0;
  int ranks = 1;
  RedOp redop = RedOp::sum;
  std::string algo = "auto", proto = "auto";  // a name leaves no choice
  std::string transport = {};
  Device device = Device::cpu;
};

/// The composition for a size: a rule of thumb, measured on ranks of one host.
Choice choose(const Case& what);

/// Whether it has kernels.
bool runs_on_gpus(const Choice& choice);

/// Whether an algorithm takes that reduction.
bool takes(const Choice& choice, RedOp redop);

/// Where "all" stands for the algorithm or the protocol: everything that it stands for. Else
/// nothing: the choice is up to `choose`.
std::vector<Choice> choices(const std::string& op, const std::string& algo,
                            const std::string& proto, Device device);

}  // namespace ccl::perf
