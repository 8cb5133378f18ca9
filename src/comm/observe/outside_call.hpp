#pragma once

#include <ccl/comm/report.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

namespace ccl::detail {

struct CommState;

/// Call of a communicator that no composition of ccl runs, in the communicator's records: the
/// flight recorder, from which reports name it, and the counters of the health service.
class OutsideCall {
 public:
  /// Records that the call runs. `op` has the name ("all_reduce/..."), type, reduction, count and
  /// root.
  OutsideCall(CommState& state, const Operation& op, Index element_bytes);
  /// Records the end, once. A call that a GPU runs has none if it is well: as with all operations
  /// there, the end of a later one is its end.
  void ended(const Result<void>& result) const;

 private:
  CommState& state_;
  Word ticket_ = 0;
  int cell_ = -1;
};

}  // namespace ccl::detail
