#pragma once

// `Collective` that chooses among candidates which the program lists. <ccl/auto.hpp> adds ccl's own
// lists, and with them every algorithm.

#include <ccl/choose/candidate.hpp>
#include <ccl/collective/collective.hpp>
#include <ccl/comm/window.hpp>
#include <ccl/detail/base/handle.hpp>
#include <ccl/detail/base/spare.hpp>
#include <ccl/detail/choose/chooser.hpp>
#include <ccl/detail/choose/created.hpp>
#include <ccl/detail/choose/lists.hpp>
#include <ccl/detail/runtime/guarded.hpp>
#include <ccl/types/counted_rows.hpp>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ccl {
namespace detail {

/// Functor among the arguments after `count` of a call that reduces.
template <class... Rest>
struct FunctorOf {
  using Type = Sum;
};
template <class F, class... Rest>
struct FunctorOf<F, Rest...> {
  using Type = F;
};

/// Functor and element type among all arguments of a call.
template <class Send, class Recv, class Count, class... Rest>
struct FunctorAmong : FunctorOf<Rest...> {
  using Element = cuda::std::remove_const_t<cuda::std::remove_pointer_t<Send>>;
};

/// True if a call of `C` accepts these arguments.
template <class C, class Acc, class T, class... Rest>
concept TakesCall = requires(const C& one, const T* send, T* recv, Index count, Rest&... rest) {
  one(send, recv, count, rest...);
} || requires(const C& one, const T* send, T* recv, Index count, Rest&... rest) {
  one.template operator()<Acc>(send, recv, count, rest...);
};

/// Implementation of a `Collective` that chooses its composition.
template <class Op, class... Cs, class Transport, bool OneOrder>
class AutoCollective<Op, Candidates<Cs...>, Transport, OneOrder> : public RefusesBuffers<Op> {
  static_assert(
      sizeof...(Cs) > 0,
      "ccl: no candidate of this operation has that protocol; name its algorithm, or give "
      "AutoOf<Candidate<...>, ...>");

 protected:
  using Made = MadeCandidates<Op, Candidates<Cs...>, Transport, OneOrder>;

 private:
  template <class... Ts>
  struct FirstOf;
  template <class T, class... Ts>
  struct FirstOf<T, Ts...> {
    using Type = T;
  };
  using First = typename Made::template One<typename FirstOf<Cs...>::Type>;
  static constexpr bool is_v = cuda::std::is_same_v<Op, AllToAllV>;
  static constexpr bool is_p2p = cuda::std::is_same_v<Op, SendRecv>;

 public:
  using RefusesBuffers<Op>::operator();
  /// Runs the call of `Collective<Op, ...>` for this operation, with the same arguments. They are
  /// passed by reference, because a `HostStream` can be among them.
  template <class Acc = void, class T, class... Rest>
    requires(!is_v && !is_p2p)
  [[nodiscard]] Result<void> operator()(const T* send, T* recv, Index count, Rest&&... rest) const {
    using F = typename FunctorOf<cuda::std::decay_t<Rest>...>::Type;
    constexpr bool fits = TakesCall<First, Acc, T, Rest...>;
    static_assert(fits,
                  "ccl: this operation's call takes other arguments after `count`; see the "
                  "operation in ccl/collective.hpp");
    CallConstraints demands{
        Op::reduces && ((!ReducesInNetwork<typename Cs::Algorithm> &&
                         !algorithm_takes<typename Cs::Algorithm, F>()) ||
                        ...),
        !commutes<F>(), Op::reduces && (!protocol_carries<typename Cs::Protocol, F, T>() || ...)};
    if constexpr (constexpr bool any = (ReducesInNetwork<typename Cs::Algorithm> || ...); any) {
      demands.no_network = !in_network<F, T>();
    }
    demands.no_switch =
        Op::reduces && (!memory_reduces<typename Cs::Algorithm, F, T, Acc>() || ...);
    static_assert(!fits || (runs<Cs, F, T, Acc>() || ...),
                  "ccl: none of the candidates can run this reduction; see `supports_reduction`, "
                  "`supports_elements` and `reorders` in the headers of their algorithms");
    constexpr bool times_ranks = is_one_of<Op, AllGather, ReduceScatter, AllToAll, Gather, Scatter>;
    const Index bytes = count * Index{sizeof(T)} * (times_ranks ? made_->ranks : 1);
    [[maybe_unused]] const auto recorded = [](const auto& argument) {
      if constexpr (cuda::std::is_same_v<decltype(argument), const Stream&>) {
        return argument.recorder() != nullptr;
      }
      return false;
    };
    demands.in_group = (recorded(rest) || ...);
    if (demands.in_group) demands.part = part_of_group<F, T>();
    int at = made_->chooser.pick(bytes, demands);
    if constexpr (constexpr bool any = (writes_windows<typename Cs::Algorithm> || ...); any) {
      // A group records its calls, and a rank could not tell the others which way it takes.
      if (bytes >= made_->chooser.window_bytes() && !demands.in_group && made_->ranks > 1) {
        CCL_TRY(at, pick_by_window(recv, bytes, at, demands, stream_among(rest...)));
      }
    }
    if constexpr (Op::reduces && fits && sizeof...(Rest) > 0) {
      if (at < 0 && made_->ranks == 1) {
        return made_->template run_alone<Acc>(send, recv, count, rest...);
      }
    }
    if (at < 0) return none_meets(demands);
    Result<void> result;
    bool ran = false;
    Made::each([&]<std::size_t I, class C>() {
      if constexpr (fits && runs<C, F, T, Acc>()) {
        if (int(I) != at) return;
        ran = true;
        const auto& one = *made_->all.template at<I>();
        if constexpr (Op::reduces) {
          result = one.template operator()<Acc>(send, recv, count, rest...);
        } else {
          result = one(send, recv, count, rest...);
        }
      }
    });
    if (!ran) return none_meets(demands);  // a call that ran nothing must not succeed
    return result;
  }
  /// Returns the call with these arguments, for `ccl::group`. On a GPU it is part of the group's
  /// kernel if the choice is the first candidate that can be. Otherwise it is a launch of its own.
  template <class Acc = void, class... Args>
  auto bind(Args... args) const {
    if constexpr (Op::reduces && !Op::rooted && sizeof...(Args) == 3) {
      return bind<Acc>(args..., Sum{});
    } else {
      using Among = FunctorAmong<Args...>;
      constexpr int part = part_of_group<typename Among::Type, typename Among::Element>();
      using Call = typename PartOf<part, Acc, Args...>::Type;
      return BoundCall<AutoCollective, Call, Acc, Args...>{*this, {args...}};
    }
  }
  int ranks() const { return made_->ranks; }
  /// Runs AllToAllV or SendRecv, whose sizes can differ between ranks. Both ends of a message know
  /// its size, so each message uses the candidate for its size. A call is one launch of each
  /// candidate that has a message, in the order of the list.
  template <class T>
    requires is_v
  [[nodiscard]] Result<void> operator()(const T* send, std::span<const Index> send_counts,
                                        std::span<const Index> send_offsets, T* recv,
                                        std::span<const Index> recv_counts,
                                        std::span<const Index> recv_offsets,
                                        Stream stream = {}) const {
    return guarded(made_->comm, [&]() -> Result<void> {
      const auto pick = [&](Index n) {
        return pick_message(n * Index{sizeof(T)} * ranks(), stream);
      };
      if (const int only = pick_only(pick, send_counts, recv_counts); only >= 0) {
        return by_candidate(only, [&](const auto& one) {
          return one(send, send_counts, send_offsets, recv, recv_counts, recv_offsets, stream);
        });
      }
      SpareVector<int> sends, recvs;
      const auto pick_all = [&](std::span<const Index> counts, SpareVector<int>& at) {
        for (const Index n : counts) at->push_back(pick(n));
      };
      pick_all(send_counts, sends);
      pick_all(recv_counts, recvs);
      const auto check = [&] {
        return table_of(made_->comm, send, {send_counts, send_offsets}, recv,
                        {recv_counts, recv_offsets}, sizeof(T));
      };
      return in_turn({&*sends, &*recvs}, check, [&](int candidate, const auto& one) {
        SpareVector<Index> sends_here, recvs_here;
        const auto keep = [&](std::span<const Index> counts, const SpareVector<int>& at,
                              SpareVector<Index>& left) {
          left->assign(counts.begin(), counts.end());
          for (std::size_t p = 0; p < left->size(); ++p) {
            if ((*at)[p] != candidate) (*left)[p] = 0;
          }
        };
        keep(send_counts, sends, sends_here);
        keep(recv_counts, recvs, recvs_here);
        return one(send, *sends_here, send_offsets, recv, *recvs_here, recv_offsets, stream);
      });
    });
  }
  /// Runs an exchange with counts in memory by the first candidate that supports it: OneShot on
  /// GPUs, Pairwise on CPU ranks.
  template <class T>
    requires is_v
  [[nodiscard]] Result<void> counted(const T* send, T* recv, const CountedRows& rows,
                                     Stream stream = {}) const {
    Result<void> result =
        fail(Errc::not_supported,
             "none of the candidates takes counts that lie in memory; name OneShot with LL128 on "
             "GPUs, Pairwise on CPU ranks");
    bool found = false;
    Made::each([&]<std::size_t I, class C>() {
      if constexpr (takes_counts<Op, typename C::Algorithm, typename C::Protocol>) {
        if (found || !made_->all.template at<I>()) return;
        found = true;
        result = made_->all.template at<I>()->counted(send, recv, rows, stream);
      }
    });
    if (!found) CCL_CHECK(check_ready(made_->comm));
    return result;
  }
  using P2pOp = detail::P2pOp;
  template <class T>
    requires is_p2p
  [[nodiscard]] Result<void> operator()(const T* send, Index send_count, int to, T* recv,
                                        Index recv_count, int from, Stream stream = {}) const {
    return group({send_message(send, send_count, to), recv_message(recv, recv_count, from)},
                 stream);
  }
  template <class T>
    requires is_p2p
  static P2pOp send_message(const T* data, Index count, int to) {
    return First::send_message(data, count, to);
  }
  template <class T>
    requires is_p2p
  static P2pOp recv_message(T* data, Index count, int from) {
    return First::recv_message(data, count, from);
  }
  template <class T>
    requires is_p2p
  [[nodiscard]] Result<void> send(const T* data, Index count, int to, Stream stream = {}) const {
    return group({send_message(data, count, to)}, stream);
  }
  template <class T>
    requires(is_p2p && takes_buffers<T*, T*>)
  [[nodiscard]] Result<void> recv(T* data, Index count, int from, Stream stream = {}) const {
    return group({recv_message(data, count, from)}, stream);
  }
  template <class Data, class... Rest>
    requires(is_p2p && !cuda::std::is_pointer_v<cuda::std::decay_t<Data>>)
  [[nodiscard]] Result<void> send(Data&&, Rest&&...) const {
    return refuse_buffers<Data, Data>();
  }
  template <class Data, class... Rest>
    requires(is_p2p && !takes_buffers<Data, Data>)
  [[nodiscard]] Result<void> recv(Data&&, Rest&&...) const {
    return refuse_buffers<Data, Data>();
  }
  [[nodiscard]] Result<void> group(std::initializer_list<P2pOp> p2p_ops, Stream stream = {}) const
    requires is_p2p
  {
    return group(std::span{p2p_ops.begin(), p2p_ops.size()}, stream);
  }
  [[nodiscard]] Result<void> group(std::span<const P2pOp> p2p_ops, Stream stream = {},
                                   Overlaps overlaps = Overlaps::refused) const
    requires is_p2p
  {
    return guarded(made_->comm, [&]() -> Result<void> {
      const auto pick = [&](const P2pOp& one) {
        return pick_message(one.count * one.element_bytes, stream);
      };
      if (const int only = pick_only(pick, p2p_ops); only >= 0) {
        return by_candidate(only,
                            [&](const auto& one) { return one.group(p2p_ops, stream, overlaps); });
      }
      SpareVector<int> at;
      for (const P2pOp& p2p_op : p2p_ops) at->push_back(pick(p2p_op));
      const auto check = [&] { return table_of(made_->comm, p2p_ops, overlaps); };
      return in_turn({&*at}, check, [&](int candidate, const auto& one) {
        SpareVector<P2pOp> mine;
        for (std::size_t l = 0; l < p2p_ops.size(); ++l) {
          if ((*at)[l] == candidate) mine->push_back(p2p_ops[l]);
        }
        return one.group(std::span<const P2pOp>{*mine}, stream, overlaps);
      });
    });
  }

  /// Returns the choice for a message of `bytes` bytes. A call whose functor that algorithm does
  /// not support can choose another. The message is the larger buffer: the data of all ranks for
  /// AllGather, ReduceScatter, AllToAll, Gather and Scatter, and else one rank's `count` elements.
  ///
  /// `in_window` is true if the receive buffer lies in a `Window`, at the same offset on all ranks.
  Choice plan(Index bytes, bool in_window = false) const { return made_->plan(bytes, in_window); }
  /// Returns the name of the chosen composition: "all_reduce/Ring/Simple/shm".
  std::string name(Index bytes, bool in_window = false) const {
    return made_->name(bytes, in_window);
  }
  /// Returns the names of the created compositions. Each is the fastest at some size.
  std::vector<std::string> compositions() const { return made_->names(); }

 protected:
  explicit AutoCollective(std::shared_ptr<const Made> made) : made_{std::move(made)} {}

 private:
  template <class... Rest>
  static Stream stream_among(const Rest&... rest) {
    Stream found;
    [[maybe_unused]] const auto look = [&](const auto& one) {
      if constexpr (cuda::std::is_convertible_v<decltype(one), Stream>) found = one;
    };
    (look(rest), ...);
    return found;
  }
  /// Returns the candidate for a call whose size is one for windows: the one that writes into them
  /// if `recv` lies in one. Otherwise returns `outside`, and tells the ranks whose buffers do.
  template <class T>
  [[nodiscard]] Result<int> pick_by_window(T* recv, Index bytes, int outside,
                                           CallConstraints demands, Stream stream) const {
    demands.in_window = true;
    const int inside = made_->chooser.pick(bytes, demands);
    if (inside == outside || lies_in_window(made_->comm, recv, bytes)) return inside;
    CCL_CHECK(made_->template pass_by<T>(inside, stream));
    return outside;
  }
  template <class F>
  static constexpr bool commutes() {
    if constexpr (!Op::reduces) return true;
    return is_commutative<F>;
  }
  template <class C, class F, class T, class Acc = void>
  static constexpr bool runs() {
    return !Op::reduces ||
           (runs_reduction<typename C::Algorithm, typename C::Protocol, F, T, Acc>() &&
            network_knows<typename C::Algorithm, T>);
  }
  /// True if the communicator's network reduces elements of `T` by `F`, or the operation only moves
  /// data.
  template <class F, class T>
  bool in_network() const {
    if constexpr (!Op::reduces) {
      return true;
    } else if constexpr (network_type<T>() < 0 || !network_has<F> ||
                         ((ReducesInNetwork<typename Cs::Algorithm> &&
                           !algorithm_takes<typename Cs::Algorithm, F>()) ||
                          ...)) {
      return false;
    } else {
      return made_->chooser.network_reduces(NetworkStep::tag(network_type<T>(), network_op<F>()));
    }
  }
  /// Returns the candidate for which a group's kernel has a part, or -1. It is never an exchange,
  /// because a rank that launches it separately would choose again.
  template <class F, class T>
  static constexpr int part_of_group() {
    int found = -1, at = 0;
    const auto see = [&](bool may) {
      if (may && found < 0) found = at;
      ++at;
    };
    (see(OverPeers<typename Cs::Algorithm> && is_collective<Op, typename Cs::Algorithm> &&
         runs<Cs, F, T>()),
     ...);
    return found;
  }
  template <int At, class Acc, class... Args>
  struct PartOf {
    using C = std::tuple_element_t<std::size_t(At), std::tuple<Cs...>>;
    using Type = bound_call<Op, typename C::Algorithm, typename C::Protocol, Acc, Args...>;
  };
  template <class Acc, class... Args>
  struct PartOf<-1, Acc, Args...> {
    using Type = void;
  };
  [[nodiscard]] Result<void> none_meets(CallConstraints demands) const {
    return guarded(made_->comm, [&]() -> Result<void> {
      CCL_CHECK(check_ready(made_->comm));
      return fail(made_->chooser.none_meets(demands));
    });
  }
  /// Returns the candidate of a message. In a group all messages use one candidate for every size,
  /// because a group records one call of each kind.
  int pick_message(Index bytes, Stream stream) const {
    return made_->chooser.pick(stream.recorder() != nullptr ? 0 : bytes);
  }
  /// Returns the candidate that `pick` returns for every message, or -1.
  template <class Pick, class... Lists>
  static int pick_only(const Pick& pick, const Lists&... lists) {
    int only = -1;
    bool first = true;
    const auto look = [&](const auto& messages) {
      for (const auto& message : messages) {
        const int at = pick(message);
        if (!first && at != only) return false;
        only = at;
        first = false;
      }
      return true;
    };
    return (look(lists) && ...) ? only : -1;
  }
  template <class F>
  [[nodiscard]] Result<void> by_candidate(int candidate, F&& f) const {
    Result<void> result;
    Made::each([&]<std::size_t I, class C>() {
      if (int(I) == candidate) result = f(*made_->all.template at<I>());
    });
    return result;
  }
  /// Calls f(index, composition) for each candidate that is chosen for some message, or for the
  /// choice of an empty message if there is none. A candidate checks its own messages; `check()`
  /// checks all.
  template <class Check, class F>
  [[nodiscard]] Result<void> in_turn(std::initializer_list<const std::vector<int>*> picked,
                                     Check&& check, F&& f) const {
    std::array<bool, sizeof...(Cs)> used{};
    const auto use = [&used](int at) {
      if (at >= 0) used[std::size_t(at)] = true;
      return at >= 0;
    };
    bool any = false;
    for (const auto* messages : picked) {
      for (const int at : *messages) {
        if (!use(at)) return none_meets({});
        any = true;
      }
    }
    if (!any && !use(made_->chooser.pick(0))) return none_meets({});
    if (std::count(used.begin(), used.end(), true) > 1) CCL_CHECK(check());
    Result<void> result;
    Made::each([&]<std::size_t I, class C>() {
      if (used[I] && result) result = f(int(I), *made_->all.template at<I>());
    });
    return result;
  }

  Handle<const Made, Made::moved_from> made_;
};

template <class Op, class Algo, class Proto, class Transport>
using AutoBase = AutoCollective<Op, typename CandidatesOver<Op, Algo, Proto, Transport>::List,
                                Transport, is_deterministic<Algo>>;

}  // namespace detail

/// Collective that chooses a composition for each call. All ranks choose alike. `create` creates
/// the candidates that are the fastest at some size, as far as the memory budget allows.
template <class Op, class Algo, class Proto, class Transport>
  requires(detail::is_auto<Algo> || detail::is_auto<Proto>)
class Collective<Op, Algo, Proto, Transport> : public detail::AutoBase<Op, Algo, Proto, Transport> {
  static_assert(!detail::is_deterministic<Proto>,
                "ccl: Deterministic stands for the algorithm, the second argument of Collective");
  using Base = detail::AutoBase<Op, Algo, Proto, Transport>;

 public:
  /// Creates the candidates. Collective.
  [[nodiscard]] static Result<Collective> create(const Communicator& comm) {
    return detail::guarded(comm, [&]() -> Result<Collective> {
      CCL_TRY(auto made, Base::Made::make(comm));
      return Collective{std::move(made)};
    });
  }
  /// Returns the predicted us of a call of `bytes` bytes (as in `plan`), by the data of this rank.
  /// Not collective, and creates nothing, so it can be called before `create`.
  [[nodiscard]] static Result<double> predict(const Communicator& comm, Index bytes) {
    return detail::without_exceptions(
        [&]() -> Result<double> { return Base::Made::predict(comm, bytes); });
  }

 private:
  using Base::Base;
  explicit Collective(std::shared_ptr<const typename Base::Made> made) : Base{std::move(made)} {}
};

}  // namespace ccl
