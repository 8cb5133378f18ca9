#pragma once

#include <string>
#include <vector>

#include "options.hpp"

namespace ccl::perf {

/// Algorithm and protocol by name; "auto" leaves one of them to ccl.
struct Choice {
  std::string algo, proto;
  std::string name() const { return algo + "/" + proto; }
  bool is_open() const { return algo == "auto" || proto == "auto"; }
};

/// True if the composition has kernels.
bool runs_on_gpus(const Choice& choice);

/// True if the composition supports the reduction of such elements.
bool supports_reduction(const Choice& choice, DataType type, RedOp redop);

/// Conditions that decide which compositions can run.
struct Surroundings {
  bool windows = false;  // the buffers are in registered windows
  bool one_host = true;  // all ranks can address each other's memory
};
/// Returns all compositions for which "all" stands as the algorithm or the protocol. Returns an
/// empty list if neither is "all", and ccl then chooses.
std::vector<Choice> choices(const std::string& op, const std::string& algo,
                            const std::string& proto, Device device, Surroundings where);

}  // namespace ccl::perf
