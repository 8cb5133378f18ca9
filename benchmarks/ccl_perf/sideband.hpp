#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "runner.hpp"

namespace ccl::perf {

/// Composition of its own by which ranks exchange their measurements.
class Sideband {
 public:
  static Result<Sideband> create(const Communicator& comm) {
    for (const Entry& entry : all_entries()) {
      // CCL_ALGO and CCL_PROTO, which can exclude any all-gather, do not affect this entry.
      if (entry.op != "all_to_all" || entry.proto != "Simple") continue;
      Plan plan;
      plan.slot_bytes = 4096;
      CCL_TRY(auto runner, entry.make(comm, plan));
      return Sideband{std::move(runner), comm.ranks()};
    }
    return fail(Errc::internal, "no composition to compare measurements with");
  }
  /// Returns the values of all ranks, by rank.
  Result<std::vector<double>> gather(double mine) const {
    std::vector<double> all(std::size_t(ranks_), 0.0), copies(std::size_t(ranks_), mine);
    Call call;
    call.type = DataType::float64;
    call.send = reinterpret_cast<const std::byte*>(copies.data());
    call.recv = reinterpret_cast<std::byte*>(all.data());
    call.count = 1;
    CCL_CHECK(runner_->run(call));
    return all;
  }
  Result<double> mean(double mine) const {
    CCL_TRY(const auto all, gather(mine));
    return std::accumulate(all.begin(), all.end(), 0.0) / ranks_;
  }
  Result<double> most(double mine) const {
    CCL_TRY(const auto all, gather(mine));
    return *std::max_element(all.begin(), all.end());
  }
  Result<void> meet() const {
    CCL_CHECK(gather(0));
    return {};
  }

 private:
  Sideband(std::unique_ptr<Runner> runner, int ranks) : runner_{std::move(runner)}, ranks_{ranks} {}
  std::unique_ptr<Runner> runner_;
  int ranks_;
};

}  // namespace ccl::perf
