#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ccl::detail {

/// A communicator in two: the ranks of each host, and, across hosts, the n-th ranks of all of them.
struct Levels {
  explicit Levels(Communicator of_host) : inner{std::move(of_host)} {}

  Communicator inner;  // rank n is the host's n-th
  std::optional<Communicator>
      outer;  // rank h is of the h-th host; of uneven hosts, first ranks only
  std::vector<std::vector<int>> hosts;  // their ranks, ascending; hosts by lowest rank
  int host = 0, local = 0;              // mine
  bool even = true;                     // equally many ranks on each
  // The n-th rank of host h is h * host_stride + n * local_stride; 0, 0: there is no such rule.
  int host_stride = 0, local_stride = 0;
  int host_count() const { return int(hosts.size()); }
  int locals() const { return int(hosts[std::size_t(host)].size()); }
  int host_of(int rank) const;
  int local_of(int rank) const;
};

/// Those of a communicator: made once, collectively, and kept by it. Each has half of its memory
/// budget for itself, and fails where it fails.
Result<std::shared_ptr<const Levels>> levels_of(const Communicator& comm);

/// Collective: what one rank's `mine` says against it, all ranks get as their error.
Result<void> agree_on(const Communicator& comm, const std::string& name, const Result<void>& mine);

/// Memory where the communicator's data lies, zeroed.
Result<std::shared_ptr<void>> scratch_of(const Communicator& comm, Index bytes);

/// An error of a level is one of the whole communicator: the other level's ranks must hear of it.
Result<void> shared_failure(const Communicator& comm, Result<void> result);

/// Rails want equally many ranks on each host; and where data of ranks lies side by side, a rule by
/// which ranks are numbered.
Result<void> check_rails(const Communicator& comm, const std::string& name, bool by_rank);

}  // namespace ccl::detail
