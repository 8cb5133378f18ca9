#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/comm/hooks.hpp>
#include <ccl/detail/base/put_name.hpp>
#include <ccl/detail/runtime/hooked_call.hpp>
#include <ccl/element/red_op.hpp>

#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ccl {

template <class Op, class CandidateList, class TypeList, class ReductionList>
class AnyCollective;

namespace detail {

template <class H>
constexpr bool check_hooks() {
  static_assert(!misses_events<H>(),
                "ccl: a hook takes other arguments, or is not const; handles call it through a "
                "const object: see `Hooks` in <ccl/comm/hooks.hpp>");
  static_assert(misses_events<H>() || Hooks<H>,
                "ccl: the type has no hook; see `Hooks` in <ccl/comm/hooks.hpp>");
  return true;
}

template <class C>
struct OperationOf {
  static_assert(!sizeof(C*),
                "ccl: Hooked composes a Communicator, a Collective or an AnyCollective with the "
                "type of the hooks, in this order");
};
template <class Op, class Algo, class Proto, class Transport>
struct OperationOf<Collective<Op, Algo, Proto, Transport>> {
  using Type = Op;
};
template <class Op, class CandidateList, class TypeList, class ReductionList>
struct OperationOf<AnyCollective<Op, CandidateList, TypeList, ReductionList>> {
  static_assert(!std::same_as<Op, SendRecv> && !std::same_as<Op, AllToAllV>,
                "ccl: hooks take messages of a Collective, not of an AnyCollective");
  using Type = Op;
};

/// Description of a call, read from its arguments.
struct CalledOperation {
  Operation op;
  Stream stream;
  bool takes_name = false;  // a text behind the type names the reduction

  template <class T>
  void take(T& argument) {
    using Plain = std::remove_const_t<T>;
    if constexpr (std::is_convertible_v<T&, Stream>) {
      stream = argument;
    } else if constexpr (std::same_as<Plain, DataType>) {
      put_name(op.type, name(argument));
      takes_name = true;
    } else if constexpr (std::same_as<Plain, RedOp>) {
      put_name(op.redop, argument.name());
      takes_name = false;
    } else if constexpr (std::is_integral_v<Plain>) {
      op.root = int(argument);
    } else if constexpr (std::is_convertible_v<T&, std::string_view>) {
      if (std::exchange(takes_name, false) && op.redop[0] != 0) put_name(op.redop, argument);
    } else {
      put_name(op.redop, redop_label(argument));
    }
  }
};
template <class Op, class T>
CalledOperation called_operation(Index count) {
  CalledOperation called;
  put_name(called.op.what, Op::name);
  if constexpr (!std::is_void_v<T>) put_name(called.op.type, type_label<T>());
  called.op.count = count;
  return called;
}

/// Calls of a `Hooked` collective, which depend on the operation. They hide those of `C`.
template <class Op, class C, class Self>
class HookedCall : public C {
 public:
  explicit HookedCall(C made) : C{std::move(made)} {}
  template <class Acc = void, class Send, class Recv, class... Rest>
    requires(!takes_buffers<Send, Recv>)
  [[nodiscard]] Result<void> operator()(Send&&, Recv&&, Rest&&...) const {
    return refuse_buffers<Send, Recv>();
  }
  /// Makes the call of the collective, with the same arguments.
  template <class Acc = void, class T, class... Rest>
  [[nodiscard]] Result<void> operator()(const T* send, T* recv, Index count, Rest&&... rest) const {
    auto called = called_operation<Op, T>(count);
    if constexpr (Op::reduces) put_name(called.op.redop, Sum::name);
    (called.take(rest), ...);
    const auto& self = static_cast<const Self&>(*this);
    return self.notify(called, [&] {
      const C& collective = self;
      if constexpr (std::is_void_v<Acc>) {
        return collective(send, recv, count, rest...);
      } else {
        return collective.template operator()<Acc>(send, recv, count, rest...);
      }
    });
  }
};

template <class C, class Self>
class HookedCall<AllToAllV, C, Self> : public C {
 public:
  using RefusesBuffers<AllToAllV>::operator();
  explicit HookedCall(C made) : C{std::move(made)} {}
  template <class T>
  [[nodiscard]] Result<void> operator()(const T* send, std::span<const Index> send_counts,
                                        std::span<const Index> send_offsets, T* recv,
                                        std::span<const Index> recv_counts,
                                        std::span<const Index> recv_offsets,
                                        Stream stream = {}) const {
    return notify<T>(stream, [&](const C& collective) {
      return collective(send, send_counts, send_offsets, recv, recv_counts, recv_offsets, stream);
    });
  }
  template <class T, class Rows>
  [[nodiscard]] Result<void> counted(const T* send, T* recv, const Rows& rows,
                                     Stream stream = {}) const {
    return notify<T>(
        stream, [&](const C& collective) { return collective.counted(send, recv, rows, stream); });
  }

 private:
  template <class T, class Run>
  [[nodiscard]] Result<void> notify(Stream stream, Run&& run) const {
    auto called = called_operation<AllToAllV, T>(-1);
    called.stream = stream;
    const auto& self = static_cast<const Self&>(*this);
    return self.notify(called, [&] { return run(static_cast<const C&>(self)); });
  }
};

template <class C, class Self>
class HookedCall<SendRecv, C, Self> : public C {
 public:
  using RefusesBuffers<SendRecv>::operator();
  using RefusesBuffers<SendRecv>::send;
  using RefusesBuffers<SendRecv>::recv;
  using P2pOp = detail::P2pOp;
  explicit HookedCall(C made) : C{std::move(made)} {}

  template <class T>
  [[nodiscard]] Result<void> operator()(const T* send, Index send_count, int to, T* recv,
                                        Index recv_count, int from, Stream stream = {}) const {
    return group({C::send_message(send, send_count, to), C::recv_message(recv, recv_count, from)},
                 stream);
  }
  template <class T>
  [[nodiscard]] Result<void> send(const T* data, Index count, int to, Stream stream = {}) const {
    return group({C::send_message(data, count, to)}, stream);
  }
  template <class T>
    requires(takes_buffers<T*, T*>)
  [[nodiscard]] Result<void> recv(T* data, Index count, int from, Stream stream = {}) const {
    return group({C::recv_message(data, count, from)}, stream);
  }
  [[nodiscard]] Result<void> group(std::initializer_list<P2pOp> p2p_ops, Stream stream = {}) const {
    return group(std::span{p2p_ops.begin(), p2p_ops.size()}, stream);
  }
  [[nodiscard]] Result<void> group(std::span<const P2pOp> p2p_ops, Stream stream = {},
                                   Overlaps overlaps = Overlaps::refused) const {
    auto called = called_operation<SendRecv, void>(-1);
    called.stream = stream;
    const auto& self = static_cast<const Self&>(*this);
    return self.notify(called, [&] {
      const C& collective = self;
      return collective.group(p2p_ops, stream, overlaps);
    });
  }
};

}  // namespace detail

/// Collective whose calls hooks receive; see `Hooks`. It makes every call of `C`, a
/// `Collective`. Without this type, calls have no code for hooks.
///
///     using Sums = ccl::Hooked<ccl::Collective<ccl::AllReduce>, MyHooks>;
///
/// Hooks receive no calls of a `ccl::group`. If several threads of a rank make calls of one
/// operation at once, an event may have the number of another of them.
template <class C, class H>
class Hooked : public detail::HookedCall<typename detail::OperationOf<C>::Type, C, Hooked<C, H>> {
  static_assert(detail::check_hooks<H>());
  static_assert(detail::misses_events<H>() || !Hooks<H> || detail::HooksCalls<H>,
                "ccl: none of the hooks receives calls; compose them with the Communicator");
  using Calls = detail::HookedCall<typename detail::OperationOf<C>::Type, C, Hooked>;

 public:
  /// Creates the collective. Collective. `hooks` of a hooked communicator are taken from it.
  [[nodiscard]] static Result<Hooked> create(const Communicator& comm, H hooks,
                                             std::optional<Plan> plan = {}) {
    CCL_TRY(auto made, make(comm, plan));
    return Hooked{std::move(made), comm, std::move(hooks)};
  }
  [[nodiscard]] static Result<Hooked> create(const Hooked<Communicator, H>& comm,
                                             std::optional<Plan> plan = {}) {
    return create(comm, comm.hooks(), std::move(plan));
  }

  const H& hooks() const { return hooks_; }

 private:
  friend Calls;
  Hooked(C made, Communicator comm, H hooks)
      : Calls{std::move(made)}, comm_{std::move(comm)}, hooks_{std::move(hooks)} {}

  [[nodiscard]] static Result<C> make(const Communicator& comm, const std::optional<Plan>& plan) {
    if constexpr (requires { C::create(comm, plan); }) {
      return C::create(comm, plan);
    } else {
      if (!plan) return C::create(comm);
      return fail(Errc::invalid_argument,
                  "a Plan was given to an operation that chooses its own; name the algorithm");
    }
  }
  template <class Run>
  [[nodiscard]] Result<void> notify(const detail::CalledOperation& called, Run&& run) const {
    if (called.stream.recorder() != nullptr) return run();
    return detail::with_hooks(hooks_, comm_, called.op, called.stream, run);
  }

  Communicator comm_;
  [[no_unique_address]] H hooks_;
};

/// Communicator whose events hooks receive; see `Hooks`. Communicators split off or shrunk from
/// it have the same hooks.
template <class H>
class Hooked<Communicator, H> : public Communicator {
  static_assert(detail::check_hooks<H>());

 public:
  [[nodiscard]] static Result<Hooked> create(const UniqueId& id, int rank, int ranks,
                                             Config config = {}, H hooks = {}) {
    return create(std::span{&id, 1}, rank, ranks, std::move(config), std::move(hooks));
  }
  [[nodiscard]] static Result<Hooked> create(std::span<const UniqueId> ids, int rank, int ranks,
                                             Config config = {}, H hooks = {}) {
    CCL_TRY(auto made, Communicator::create(ids, rank, ranks, with(std::move(config), hooks)));
    return Hooked{std::move(made), std::move(hooks)};
  }
  [[nodiscard]] static Result<std::vector<Hooked>> create_all(int ranks, Config config = {},
                                                              H hooks = {}) {
    CCL_TRY(auto made, Communicator::create_all(ranks, with(std::move(config), hooks)));
    std::vector<Hooked> all;
    for (Communicator& one : made) all.push_back(Hooked{std::move(one), hooks});
    return all;
  }
  [[nodiscard]] static Result<Hooked> from_env(Config config = {}, H hooks = {}) {
    CCL_TRY(auto made, Communicator::from_env(with(std::move(config), hooks)));
    return Hooked{std::move(made), std::move(hooks)};
  }
  [[nodiscard]] Result<std::optional<Hooked>> split(int color, int key, Config config = {}) const {
    CCL_TRY(auto made, Communicator::split(color, key, with(std::move(config), hooks_)));
    if (!made) return std::optional<Hooked>{};
    return std::optional<Hooked>{Hooked{*std::move(made), hooks_}};
  }
  [[nodiscard]] Result<Hooked> shrink(std::span<const int> excluded,
                                      Shrink parent = Shrink::keep_parent,
                                      Config config = {}) const {
    CCL_TRY(auto made, Communicator::shrink(excluded, parent, with(std::move(config), hooks_)));
    return Hooked{std::move(made), hooks_};
  }

  const H& hooks() const { return hooks_; }

 private:
  Hooked(Communicator made, H hooks) : Communicator{std::move(made)}, hooks_{std::move(hooks)} {}
  static Config with(Config config, const H& hooks) {
    if constexpr (detail::HooksCommunicators<H>) {
      config.hooks = std::make_shared<detail::CommHooksOf<H>>(hooks);
    }
    return config;
  }

  [[no_unique_address]] H hooks_;
};

}  // namespace ccl
