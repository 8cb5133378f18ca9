#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ccl::detail {

/// Two levels of a communicator: the ranks of each host, and the n-th ranks of all hosts. Heads
/// have a level between hosts of their own.
struct Levels {
  explicit Levels(Communicator of_host) : inner{std::move(of_host)} {}

  Communicator inner;  // rank n is the n-th rank of the host
  std::optional<Communicator>
      outer;  // rank h is on the h-th host; with uneven hosts it has the first ranks only
  std::vector<std::vector<int>> hosts;  // ranks of each host, ascending; hosts by lowest rank
  int host = 0, local = 0;              // position of this rank
  bool even = true;                     // all hosts have the same number of ranks
  // The n-th rank of host h is h * host_stride + n * local_stride. Both are 0 if no such rule
  // exists.
  int host_stride = 0, local_stride = 0;

  std::vector<std::vector<int>> heads{};    // of each host, as many on each; empty: not asked for
  std::optional<Communicator> head_rail{};  // rank h is on the h-th host; null: this is no head
  int slice = -1;                           // place of this rank among the heads of its host

  /// A level that this rank is in, and its ranks in the whole communicator.
  struct Part {
    const Communicator& comm;
    std::vector<int> ranks;
    const char* name;
  };
  /// Each level once.
  std::vector<Part> parts() const;
  int host_count() const { return int(hosts.size()); }
  int locals() const { return int(hosts[std::size_t(host)].size()); }
  int host_of(int rank) const;
  int local_of(int rank) const;
};

/// Returns the levels of a communicator, which keeps them. Collective at the first call. Each level
/// has half of a given memory budget, and fails with the communicator. `with_heads`: also that of
/// the heads.
Result<std::shared_ptr<const Levels>> levels_of(const Communicator& comm, bool with_heads = false);

/// Turns an error in `mine` of one rank into an error of all ranks. Collective.
Result<void> agree_on(const Communicator& comm, const std::string& name, const Result<void>& mine);

/// Allocates zeroed memory on the communicator's device: host memory for CPU ranks.
Result<std::shared_ptr<void>> scratch_of(const Communicator& comm, Index bytes);

/// Turns an error of a level into an error of the whole communicator, because the ranks of the
/// other level must get it.
Result<void> shared_failure(const Communicator& comm, Result<void> result);

/// Checks that all hosts have the same number of ranks. If `by_rank`, also checks that the ranks
/// are numbered by a rule, because data of ranks then lies side by side.
Result<void> check_rails(const Communicator& comm, const std::string& name, bool by_rank);

}  // namespace ccl::detail
