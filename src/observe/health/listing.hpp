#pragma once

#include <memory>
#include <vector>

#include "observe/health/gather.hpp"
#include "observe/health/metrics.hpp"

namespace ccl::detail {
struct CommState;
}

namespace ccl::detail::health {

/// Communicators of this process. Its owner guards it by a mutex, which no caller of the network
/// thread's mutex may hold.
class Listing {
 public:
  void add(CommState& state);
  /// Returns false if it was not listed.
  bool remove(const CommState& state);
  bool empty() const { return all_.empty(); }

  /// One entry for each communicator, however many of its ranks are in this process.
  std::vector<Asked> asked() const;
  std::vector<CommMetrics> metrics() const;
  /// Notes which operations run, and which of them wait for another rank.
  void sample();

 private:
  struct Entry {
    CommState* state;
    Word hash;
    WaitSamples waits;
    Asked asks;  // without the view
  };
  std::vector<Entry> all_;
};

}  // namespace ccl::detail::health
