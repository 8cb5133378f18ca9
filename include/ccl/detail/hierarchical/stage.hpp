#pragma once

#include <ccl/detail/compose/check_composition.hpp>
#include <ccl/detail/compose/composition.hpp>
#include <ccl/detail/exchange/over_peers.hpp>
#include <ccl/detail/exchange/over_wires.hpp>

#include <span>
#include <utility>

namespace ccl::detail {

/// Composition that is a part of another. It does not check the places of its shares.
template <class Op, class Algo, class Proto, class Transport>
class Stage : public Composition<Op, Algo, Proto, exec_spaces<Transport>()> {
  static_assert(check_collective<Op, Algo, Proto, Transport>());
  static constexpr ExecSpaces sides = exec_spaces<Transport>();
  using Base = Composition<Op, Algo, Proto, sides>;

 public:
  Stage() = default;
  /// Creates the composition. Collective.
  static Result<Stage> create(const Communicator& comm, std::optional<Plan> plan) {
    CCL_TRY(auto connections, Base::template make_connections<Transport>(comm, plan));
    return Stage{std::move(connections)};
  }

  /// Runs an operation that reduces.
  template <class R>
  Result<void> reduce(const R& reduction, const void* in, void* out, const Layout& layout, int root,
                      Stream stream) const {
    using T = typename R::Type;
    if (this->connections_->comm().ranks() == 1) {
      return this->reduce_alone(reduction, in, out, layout.count, stream);
    }
    const auto info =
        call_info<T, typename R::Functor>(Op::name, layout.count, Op::rooted ? root : -1);
    return this->launch(info, reduction, in, out, layout, root, stream);
  }

  /// Run of an all-gather: `bytes` of each rank. Places of ranks in `out` are `stride` bytes apart.
  struct Run {
    const char* in;
    char* out;
  };
  /// Gathers runs one after another, or all at once if the algorithm sends messages of a table.
  Result<void> gather(std::span<const Run> runs, Index bytes, Index stride, Stream stream) const {
    const auto info = call_info<char, void>(Op::name, bytes, -1);
    const int ranks = this->connections_->comm().ranks();
    if constexpr (Exchanges<Op, Algo>) {
      MessageTable table{ranks};
      for (const Run& run : runs) {
        for (int p = 0; p < ranks; ++p) {
          table.send(p, run.in, bytes);
          table.recv(p, run.out + p * stride, bytes);
        }
      }
      return exchange(info, std::move(table), stream);
    } else {
      for (const Run& run : runs) {
        CCL_CHECK(ranks == 1 ? copy(run.in, run.out, bytes, stream)
                             : this->launch(info, Bytes{}, run.in, run.out,
                                            {bytes, 0, stride, false}, 0, stream));
      }
      return {};
    }
  }

  /// Empty table for messages between any two ranks.
  MessageTable table() const { return MessageTable{this->connections_->comm().ranks()}; }
  Result<void> send_all(MessageTable table, Stream stream) const {
    return exchange(call_info<char, void>(Op::name, -1, -1), std::move(table), stream);
  }

  Result<void> broadcast(const void* in, void* out, Index bytes, int root, Stream stream) const {
    const auto info = call_info<char, void>(Op::name, bytes, root);
    const auto& comm = this->connections_->comm();
    if constexpr (Exchanges<Op, Algo>) {
      MessageTable table{comm.ranks()};
      for (int p = 0; root == comm.rank() && p < comm.ranks(); ++p) table.send(p, in, bytes);
      table.recv(root, out, bytes);
      return exchange(info, std::move(table), stream);
    } else {
      if (comm.ranks() == 1) return copy(in, out, bytes, stream);
      return this->launch(info, Bytes{}, in, out, {bytes, 0, 0, false}, root, stream);
    }
  }

  /// Copies this rank's own data, in the order of the stage's calls.
  Result<void> copy(const void* from, void* to, Index bytes, Stream stream) const {
    if (from == to || bytes == 0) return {};
    return this->move_alone(from, to, bytes, stream);
  }

 private:
  explicit Stage(std::shared_ptr<Connections> connections) : Base{std::move(connections)} {}

  Result<void> exchange(const CallInfo& info, MessageTable table, Stream stream) const {
    if constexpr (OverPeers<Algo>) {
      return exchange_over_peers<Op, Algo, Proto>(this->connections_, info, std::move(table),
                                                  stream);
    } else {
      return detail::exchange<Op, Algo, Proto, sides>(this->connections_, info, std::move(table),
                                                      stream);
    }
  }
};

/// Stands for a stage that a composition does not have.
struct NoStage {};

}  // namespace ccl::detail
