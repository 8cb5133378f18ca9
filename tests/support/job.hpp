#pragma once

#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/unique_id.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/any_of.hpp>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ccl::test {

/// One rank's part of a job, as these tests see it: a communicator and a collective on it.
class Job {
 public:
  using Call = Collective<AllReduce, Tree, Simple, DefaultTransport>;

  /// Seconds without progress: of the creation, of a call.
  static Result<Job> create(const UniqueId& id, int rank, int ranks, double creation_s,
                            double call_s) {
    Config config;
    config.init_timeout_s = creation_s;
    config.timeout_s = call_s;
    CCL_TRY(auto comm, Communicator::create(id, rank, ranks, config));
    CCL_TRY(auto call, Call::create(comm));
    return Job{std::move(comm), std::move(call)};
  }
  /// Communication that every rank has a part in, with a result that is checked.
  Result<void> step() {
    std::vector<int> data(10'001, comm_.rank() + 1);
    CCL_CHECK(call_(data.data(), data.data(), Index(data.size()), Sum{}));
    const int sum = comm_.ranks() * (comm_.ranks() + 1) / 2;
    for (const int value : data) {
      if (value != sum) return fail(Errc::internal, "wrong data");
    }
    return {};
  }
  int hosts() const {
    std::set<std::uint64_t> hashes;
    for (int rank = 0; rank < comm_.ranks(); ++rank) hashes.insert(comm_.peer(rank).host_hash);
    return int(hashes.size());
  }
  Result<void> finalize() { return comm_.finalize(); }

 private:
  Job(Communicator comm, Call call) : comm_{std::move(comm)}, call_{std::move(call)} {}
  Communicator comm_;
  Call call_;
};

}  // namespace ccl::test
