#pragma once

#include <ccl/detail/choose/chooser.hpp>

#include <map>

#include "listing.hpp"
#include "options.hpp"

namespace ccl::perf {

/// The compositions in use, made when first asked for. All ranks ask in the same order.
class Compositions {
 public:
  /// Both must outlive it.
  Compositions(const Communicator& comm, const Options& options) : comm_{comm}, options_{options} {}

  Result<const Runner*> get(const Choice& choice);
  /// What is left open is chosen as `Collective<Op>` chooses. Collective at first.
  Result<Choice> settle(const Choice& choice, Index bytes, DataType type, RedOp redop);
  /// What a table of measurements would call this communicator. Collective at first.
  Result<detail::TuningCase> tuning_case();

 private:
  struct Chooser {
    std::vector<Choice> names;
    detail::Chooser chooser;
  };
  Result<const Chooser*> chooser(const Choice& choice);

  const Communicator& comm_;
  const Options& options_;
  std::map<std::string, std::unique_ptr<Runner>> made_;
  std::map<std::string, Chooser> choosers_;  // by what is open
};

}  // namespace ccl::perf
