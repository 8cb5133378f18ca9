#pragma once

#include <ccl/detail/choose/chooser.hpp>

#include <map>

#include "listing.hpp"
#include "options.hpp"

namespace ccl::perf {

/// Compositions in use, created at their first use. All ranks use them in the same order.
class Compositions {
 public:
  /// Keeps references: both must outlive this object.
  Compositions(const Communicator& comm, const Options& options) : comm_{comm}, options_{options} {}

  Result<const Runner*> get(const Choice& choice) { return get_of(options_.op, choice); }
  /// Returns a composition of another operation, with the plan of the options.
  Result<const Runner*> get_of(const std::string& op, const Choice& choice);
  /// Returns the traced form of a composition of the options' operation, with the plan of `get`.
  /// Fails with `Errc::not_supported` if this program does not contain it. Collective.
  Result<const Runner*> get_traced(const Choice& choice);
  /// True if the cost model takes the composition to move its data over wires.
  bool over_wires(const Choice& choice) const;
  /// Returns how many messages cross the busiest direction of a rank, by the cost model.
  double volume(const Choice& choice) const;
  /// Resolves open parts of the choice as `Collective<Op>` does. Collective at its first call.
  Result<Choice> resolve(const Choice& choice, Index bytes, DataType type, RedOp redop);
  /// Returns the case under which a table of measurements holds this communicator. Collective at
  /// its first call.
  Result<detail::TuningCase> tuning_case();

 private:
  struct Chooser {
    std::vector<Choice> names;
    detail::Chooser chooser;
  };
  Result<const Chooser*> chooser(const Choice& choice);
  const Entry* find(const Choice& choice) const;  // null: this program does not contain it

  const Communicator& comm_;
  const Options& options_;
  std::map<std::string, std::unique_ptr<Runner>> made_;
  std::map<std::string, Chooser> choosers_;  // keyed by the open parts
};

}  // namespace ccl::perf
