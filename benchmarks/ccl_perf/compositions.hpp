#pragma once

#include <map>

#include "options.hpp"
#include "rule.hpp"

namespace ccl::perf {

/// The compositions in use, made when first asked for. All ranks ask in the same order.
class Compositions {
 public:
  /// Both must outlive it.
  Compositions(const Communicator& comm, const Options& options) : comm_{comm}, options_{options} {}

  Result<const Runner*> get(const Choice& choice);

 private:
  const Communicator& comm_;
  const Options& options_;
  std::map<std::string, std::unique_ptr<Runner>> made_;
};

}  // namespace ccl::perf
