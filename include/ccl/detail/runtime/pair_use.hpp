#pragma once

#include <vector>

namespace ccl::detail {

class Connections;

/// Keeps the pairs with these ranks connected, once they are, while it lives. The constructor
/// blocks while one of the pairs closes. Does nothing where pairs stay connected.
class PairUse {
 public:
  PairUse(Connections& of, const std::vector<int>& from, const std::vector<int>& to);
  ~PairUse();
  PairUse(const PairUse&) = delete;
  PairUse& operator=(const PairUse&) = delete;
  /// False if the communicator has failed. The call must not run then.
  bool begun() const { return begun_; }

 private:
  Connections& of_;
  const std::vector<int>& from_;
  const std::vector<int>& to_;
  bool begun_ = true;
};

}  // namespace ccl::detail
