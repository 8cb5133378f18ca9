#pragma once

#include <ccl/any_collective.hpp>
#include <ccl/auto.hpp>
#include <ccl/comm/communicator.hpp>

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "reduce.hpp"

namespace ccl::python {

/// Addresses of a call that only moves data, and what they hold.
struct Move {
  const void* send = nullptr;
  void* recv = nullptr;
  Index count = 0;  ///< elements of `type`
  DataType type = DataType::uint8;
  Stream stream{};
};

/// Operations of a communicator on CPU ranks. Each is created by its first call, which is
/// collective, as the call itself is.
class Collectives {
 public:
  explicit Collectives(Communicator comm) : comm_{std::move(comm)} {}

  const Communicator& comm() const { return comm_; }
  Result<void> all_reduce(const Call& call);
  Result<void> reduce_scatter(const Call& call);
  Result<void> reduce(const Call& call);
  Result<void> all_gather(const Move& move);
  Result<void> all_to_all(const Move& move);
  Result<void> broadcast(const Move& move, int root);
  Result<void> gather(const Move& move, int root);
  Result<void> scatter(const Move& move, int root);
  /// Counts and offsets are in elements, one for each rank.
  Result<void> all_to_all_v(const Move& move, std::span<const Index> send_counts,
                            std::span<const Index> send_offsets, std::span<const Index> recv_counts,
                            std::span<const Index> recv_offsets);
  /// Runs all messages at once.
  Result<void> messages(std::span<const AnyMessage> messages, Stream stream);

  /// Returns the names of the types that reductions have code for: "float, int32".
  static std::string reduced_types();

 private:
  template <class Op>
  using Any = AnyCollective<Op, Candidates<Candidate<Auto, Auto>>>;

  template <class C>
  Result<const C*> get() {
    const std::lock_guard lock{mutex_};  // creations have one order
    auto& slot = std::get<std::optional<C>>(made_);
    if (!slot) {
      CCL_TRY(auto made, C::create(comm_));
      slot.emplace(std::move(made));
    }
    return &*slot;
  }
  template <class Op>
  Result<void> reduce_by(const Call& call);

  Communicator comm_;
  std::mutex mutex_;
  std::tuple<std::optional<Collective<AllReduce>>, std::optional<Collective<ReduceScatter>>,
             std::optional<Collective<Reduce>>, std::optional<Any<AllGather>>,
             std::optional<Any<AllToAll>>, std::optional<Any<Broadcast>>,
             std::optional<Any<Gather>>, std::optional<Any<Scatter>>, std::optional<Any<AllToAllV>>,
             std::optional<Any<SendRecv>>>
      made_;
};

}  // namespace ccl::python
