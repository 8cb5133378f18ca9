#pragma once

#include <ccl/bootstrap.hpp>

#include <set>

namespace ccl::test {

/// One rank's part of a job, as these tests see it.
class Job {
 public:
  static Result<Job> create(const UniqueId& id, int rank, int ranks, double deadline_s) {
    BootstrapOptions options;
    options.deadline_s = deadline_s;
    CCL_TRY(auto bootstrap, Bootstrap::join({&id, 1}, rank, ranks, options));
    return Job{std::move(bootstrap)};
  }
  /// Some communication that every rank has a part in.
  Result<void> step() {
    std::vector<int> all(std::size_t(bootstrap_->ranks()), -1);
    all[std::size_t(bootstrap_->rank())] = bootstrap_->rank() * 3;
    CCL_CHECK(bootstrap_->all_gather_hosts(all.data(), sizeof(int)));
    for (int rank = 0; rank < bootstrap_->ranks(); ++rank) {
      if (all[std::size_t(rank)] != rank * 3) return fail(Errc::internal, "wrong data");
    }
    return {};
  }
  int hosts() const {
    std::set<std::uint64_t> hashes;
    for (int rank = 0; rank < bootstrap_->ranks(); ++rank) {
      hashes.insert(bootstrap_->place(rank).host_hash);
    }
    return int(hashes.size());
  }
  Result<void> finalize() { return bootstrap_->finalize(); }

 private:
  explicit Job(std::unique_ptr<Bootstrap> bootstrap) : bootstrap_{std::move(bootstrap)} {}
  std::unique_ptr<Bootstrap> bootstrap_;
};

}  // namespace ccl::test
