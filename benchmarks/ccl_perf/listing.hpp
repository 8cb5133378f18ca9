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

/// Whether a composition takes that reduction of such elements.
bool supports_reduction(const Choice& choice, DataType type, RedOp redop);

/// What decides which compositions can run.
struct Surroundings {
  bool windows = false;  // the buffers are in registered windows
  bool one_host = true;  // all ranks may address each other's memory
};
/// Where "all" stands for the algorithm or the protocol: everything that it stands for. Else
/// nothing: the choice is up to ccl.
std::vector<Choice> choices(const std::string& op, const std::string& algo,
                            const std::string& proto, Device device, Surroundings where);

}  // namespace ccl::perf
