#pragma once

// Compositions of the ranks in which faults are injected, by Ring and Pairwise. Ranks are of the
// CPU (`Shm`, `Tcp`), or of another space of execution, such as GPUs.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/socket.hpp>

#include <memory>
#include <utility>

#include "support/fault_job.hpp"

namespace ccl::test::faults {

/// Handles of one rank, and compositions that all faults use.
template <class Transport, class Space = CpuRank>
struct Calls {
  using Sums = Collective<AllReduce, Ring, Simple, Transport>;
  using LLSums = Collective<AllReduce, Ring, LL, Transport>;
  using Copies = Collective<Broadcast, Ring, Simple, Transport>;
  using Messages = Collective<SendRecv, Pairwise, Simple, Transport>;
  template <class T>
  using Array = typename Space::template Array<T>;
  Communicator comm;
  Board& board;
  Sums sums;
  LLSums ll_sums;
  Copies copies;
  Messages messages;
  Array<float> x = Array<float>(400'000, 1.f), y = Array<float>(400'000, 1.f);
  Array<double> dx = Array<double>(400'000, 1.), dy = Array<double>(400'000, 1.);

  static Result<std::unique_ptr<Calls>> create(const Communicator& comm, Board& board) {
    Space::enter(comm);
    CCL_TRY(auto sums, Sums::create(comm));
    CCL_TRY(auto ll_sums, LLSums::create(comm));
    CCL_TRY(auto copies, Copies::create(comm));
    CCL_TRY(auto messages, Messages::create(comm));
    return std::unique_ptr<Calls>{new Calls{comm, board, std::move(sums), std::move(ll_sums),
                                            std::move(copies), std::move(messages)}};
  }
  static Config config(int rank) { return Space::config(rank); }
  static UniqueId id() { return Space::id(); }
  static void begin(int rank, const UniqueId& id) { Space::begin(rank, id); }
  Result<void> ended(Result<void> call) const { return Space::ended(comm, std::move(call)); }
  Result<void> sum(Index n = count) { return ended(sums(x.data(), y.data(), n)); }
  bool is_victim() const { return comm.rank() == victim; }
};
using Shm = Calls<DefaultTransport>;
using Tcp = Calls<SocketTransport>;

}  // namespace ccl::test::faults
