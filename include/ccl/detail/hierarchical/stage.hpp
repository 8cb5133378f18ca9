#pragma once

#include <ccl/detail/compose/check_composition.hpp>
#include <ccl/detail/compose/composition.hpp>
#include <ccl/detail/exchange/over_peers.hpp>
#include <ccl/detail/exchange/over_wires.hpp>
#include <ccl/detail/hierarchical/any_stage.hpp>

#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace ccl::detail {

/// Reductions of the passes over levels.
template <class Whole, class Begun, class Ended>
struct ReductionsOfPasses {
  Whole whole;
  Begun begun;
  Ended ended;
};

/// Composition that is a part of another. It does not check the places of its shares.
template <class Op, class Algo, class Proto, class Transport>
class Stage final : public AnyStage, Composition<Op, Algo, Proto, exec_spaces<Transport>()> {
  static_assert(check_collective<Op, Algo, Proto, Transport>());
  static constexpr ExecSpaces sides = exec_spaces<Transport>();
  using Base = Composition<Op, Algo, Proto, sides>;

 public:
  explicit Stage(std::shared_ptr<Connections> connections) : Base{std::move(connections)} {}
  /// Creates the composition. Collective.
  static Result<std::unique_ptr<const AnyStage>> create(const Communicator& comm,
                                                        std::optional<Plan> plan) {
    CCL_TRY(auto connections, Base::template make_connections<Transport>(comm, plan));
    // `make_unique` would instantiate a unique_ptr for each stage.
    return std::unique_ptr<const AnyStage>{new Stage{std::move(connections)}};
  }
  const Plan& level_plan() const override { return this->plan(); }

  /// `LevelReductions::Reduce` of this stage.
  template <class Passes>
  static Result<void> reduce_pass(const AnyStage& stage, const void* by, Pass pass, const void* in,
                                  void* out, const Layout& layout, int root, Stream stream) {
    const auto& self = static_cast<const Stage&>(stage);
    const auto& of = *static_cast<const Passes*>(by);
    if (pass == Pass::begun) return self.reduce(of.begun, in, out, layout, root, stream);
    if (pass == Pass::ended) return self.reduce(of.ended, in, out, layout, root, stream);
    return self.reduce(of.whole, in, out, layout, root, stream);
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
        call_info<T>(Op::name, layout.count, Op::rooted ? root : -1, redop_label(reduction.op));
    return this->launch(info, reduction, in, out, layout, root, stream);
  }

  Result<void> gather(std::span<const Run> runs, Index bytes, Index stride,
                      Stream stream) const override {
    if constexpr (!std::is_same_v<Op, AllGather>) {
      return wrong_operation(Op::name);
    } else {
      const auto info = call_info<char>(Op::name, bytes, -1);
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
  }

  Result<void> broadcast(const void* in, void* out, Index bytes, int root,
                         Stream stream) const override {
    if constexpr (!std::is_same_v<Op, Broadcast>) {
      return wrong_operation(Op::name);
    } else {
      const auto info = call_info<char>(Op::name, bytes, root);
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
  }

  Result<void> send_all(MessageTable table, Stream stream) const override {
    if constexpr (!std::is_same_v<Op, AllToAllV>) {
      return wrong_operation(Op::name);
    } else {
      return exchange(call_info<char>(Op::name, -1, -1), std::move(table), stream);
    }
  }

 private:
  /// Copies this rank's own data, in the order of the stage's calls.
  Result<void> copy(const void* from, void* to, Index bytes, Stream stream) const {
    if (from == to || bytes == 0) return {};
    return this->move_alone(from, to, bytes, stream);
  }
  Result<void> exchange(const CallInfo& info, MessageTable&& table, Stream stream) const {
    if constexpr (OverPeers<Algo>) {
      return exchange_over_peers<Op, Algo, Proto>(this->connections_, info, std::move(table),
                                                  stream);
    } else {
      return detail::exchange<Op, Algo, Proto, sides>(this->connections_, info, std::move(table),
                                                      stream);
    }
  }
};

}  // namespace ccl::detail
