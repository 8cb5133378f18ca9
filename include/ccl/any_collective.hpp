#pragma once

#include <ccl/choose/candidate.hpp>
#include <ccl/collective.hpp>
#include <ccl/detail/base/concat.hpp>
#include <ccl/detail/runtime/guarded.hpp>
#include <ccl/detail/runtime/levels.hpp>
#include <ccl/element/red_op.hpp>

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

namespace ccl {
namespace detail {
/// True if all types differ in their `DataType`, by which a call names them.
template <class... Ts>
constexpr bool other_data_types() {
  const std::array<int, sizeof...(Ts)> all{find_data_type<Ts>() ? int(*find_data_type<Ts>())
                                                                : -1 ...};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (all[i] == all[j] && all[i] >= 0) return false;
    }
  }
  return true;
}
template <class... Fs>
constexpr bool other_names() {
  if constexpr (requires {
                  std::bool_constant<((std::string_view{Fs::name}.size() > 0) && ...)>{};
                }) {
    const std::array<std::string_view, sizeof...(Fs)> all{Fs::name...};
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (all[i] == all[j]) return false;
      }
    }
  }
  return true;
}
}  // namespace detail

// Element types for which a program holds code, once for each candidate that reduces.
template <class... Ts>
struct Types {};
template <class... Fs>
struct Reductions {};

/// Message of a group, with a type that is chosen at run time.
struct AnyMessage {
  bool sends = false;
  void* data = nullptr;  ///< only read if the message is sent
  Index count = 0;
  DataType type = DataType::uint8;
  int peer = -1;
};

/// Operation whose composition, element type and reduction are chosen at run time from the lists of
/// the program. An entry that is not listed is an error that names the listed ones. It is a handle,
/// like `Collective`.
///
///     using AllReduces = ccl::AnyCollective<
///         ccl::AllReduce,
///         ccl::Candidates<ccl::Candidate<ccl::Ring, ccl::LL>,
///                         ccl::Candidate<ccl::Ring, ccl::Simple>>,
///         ccl::Types<float, ccl::bfloat16>, ccl::Reductions<ccl::Sum, ccl::Max>>;
///
/// Operations that only move data accept every type, and are instantiated once for each candidate.
/// `Candidates<Candidate<Auto, Auto>>` (<ccl/auto.hpp>) chooses by the cost model, like
/// `Collective<Op>`.
///
/// A call names its candidate ("Tree", "Ring/LL" or "Ring/LL/any") or leaves the choice, which must
/// be equal on all ranks:
/// - The first candidate that supports the reduction and whose `max_bytes` covers the larger
///   buffer.
/// - The last candidate if there is none, or if sizes can differ between ranks (AllToAllV,
///   SendRecv).
template <class Op, class CandidateList, class TypeList = Types<>,
          class ReductionList = Reductions<>>
class AnyCollective {
  static_assert(!sizeof(Op*),
                "ccl: AnyCollective takes an operation, Candidates<Candidate<Ring, LL>, ...>, "
                "Types<float, ...> and Reductions<Sum, ...>, in this order");
};

template <class Op, class... Cs, class... Ts, class... Fs>
class AnyCollective<Op, Candidates<Cs...>, Types<Ts...>, Reductions<Fs...>> {
  static_assert(sizeof...(Cs) > 0,
                "ccl: AnyCollective lists no candidate; give it Candidates<Candidate<Ring, LL>, "
                "...>");
  static_assert(!Op::reduces || (sizeof...(Ts) > 0 && sizeof...(Fs) > 0),
                "ccl: this operation reduces, so AnyCollective needs Types<...> and "
                "Reductions<...>: there is code for each pair of these and no other");
  static_assert(Op::reduces || sizeof...(Ts) + sizeof...(Fs) == 0,
                "ccl: this operation moves data of any type, by code that is there once; leave "
                "Types and Reductions out");
  static_assert((has_data_type<Ts> && ...),
                "ccl: a type in Types has no DataType, so that no call could name it; use "
                "Collective for it");
  static_assert((detail::NamedFunctor<Fs> && ...),
                "ccl: a functor in Reductions has no `name`, by which a call would choose it");
  static_assert(detail::other_data_types<Ts...>(),
                "ccl: two types in Types have one DataType, as long and long long do, and a call "
                "could not tell which it means; leave one out");
  static_assert(detail::other_names<Fs...>(),
                "ccl: two functors in Reductions have one `name`, and a call could not tell which "
                "it means; give each its own");
  static constexpr bool is_v = cuda::std::is_same_v<Op, AllToAllV>;
  static constexpr bool is_p2p = cuda::std::is_same_v<Op, SendRecv>;

 public:
  /// Creates the operation and connects all candidates that CCL_ALGO and CCL_PROTO allow on all
  /// ranks. Collective. Fails with `Errc::bad_setting` if no candidate is left.
  [[nodiscard]] static Result<AnyCollective> create(const Communicator& comm) {
    return detail::guarded(comm, [&]() -> Result<AnyCollective> {
      CCL_CHECK(detail::check_ready(comm));
      AnyCollective made{comm};
      CCL_TRY(const auto lock,
              detail::creating_alone(comm, detail::concat({Op::name, " by any of ", names()})));
      Result<void> good;
      // Candidates are created in the order of the list on all ranks.
      each([&]<std::size_t I, class C>() {
        if (!good) return;
        good = made.template make<I, C>();
      });
      if (!good) return fail(std::move(good).error());
      if (made.usable() == 0) {
        return made.annotate(
            Errc::bad_setting,
            detail::concat({Op::name,
                            " has no candidate left (CCL_ALGO and CCL_PROTO exclude all of ",
                            names(), "); unset one of them"}));
      }
      return made;
    });
  }

  /// Runs AllReduce or ReduceScatter; see `Collective`. `count` is in elements of `type`.
  [[nodiscard]] Result<void> operator()(const void* send, void* recv, Index count, DataType type,
                                        const RedOp& op, Stream stream = {},
                                        std::string_view which = {}) const
    requires(Op::reduces && !Op::rooted)
  {
    return detail::guarded(comm_, [&]() -> Result<void> {
      return reduce(type, op, pick(count, type, which, able(type, op)),
                    [&]<class T, class F>(const auto& call, const F& functor) {
                      return call(static_cast<const T*>(send), static_cast<T*>(recv), count,
                                  functor, stream);
                    });
    });
  }
  /// Runs Reduce; see `Collective`. `count` is in elements of `type`.
  [[nodiscard]] Result<void> operator()(const void* send, void* recv, Index count, DataType type,
                                        const RedOp& op, int root, Stream stream = {},
                                        std::string_view which = {}) const
    requires(Op::reduces && Op::rooted)
  {
    return detail::guarded(comm_, [&]() -> Result<void> {
      return reduce(type, op, pick(count, type, which, able(type, op)),
                    [&]<class T, class F>(const auto& call, const F& functor) {
                      return call(static_cast<const T*>(send), static_cast<T*>(recv), count,
                                  functor, root, stream);
                    });
    });
  }
  /// Runs AllGather or AllToAll; see `Collective`. `count` is in elements of `type`.
  [[nodiscard]] Result<void> operator()(const void* send, void* recv, Index count, DataType type,
                                        Stream stream = {}, std::string_view which = {}) const
    requires(!Op::reduces && !Op::rooted && !is_v && !is_p2p)
  {
    return detail::guarded(comm_, [&]() -> Result<void> {
      return move(type, pick(count, type, which), [&]<class T>(const auto& call) {
        return call(static_cast<const T*>(send), static_cast<T*>(recv), count, stream);
      });
    });
  }
  /// Runs Broadcast, Gather or Scatter; see `Collective`. `count` is in elements of `type`.
  [[nodiscard]] Result<void> operator()(const void* send, void* recv, Index count, DataType type,
                                        int root, Stream stream = {},
                                        std::string_view which = {}) const
    requires(!Op::reduces && Op::rooted)
  {
    return detail::guarded(comm_, [&]() -> Result<void> {
      return move(type, pick(count, type, which), [&]<class T>(const auto& call) {
        return call(static_cast<const T*>(send), static_cast<T*>(recv), count, root, stream);
      });
    });
  }
  /// Runs AllToAllV. Counts and offsets are in elements, one for each rank.
  [[nodiscard]] Result<void> operator()(const void* send, std::span<const Index> send_counts,
                                        std::span<const Index> send_offsets, void* recv,
                                        std::span<const Index> recv_counts,
                                        std::span<const Index> recv_offsets, DataType type,
                                        Stream stream = {}, std::string_view which = {}) const
    requires is_v
  {
    return detail::guarded(comm_, [&]() -> Result<void> {
      return move(type, pick(any_size, type, which), [&]<class T>(const auto& call) {
        return call(static_cast<const T*>(send), send_counts, send_offsets, static_cast<T*>(recv),
                    recv_counts, recv_offsets, stream);
      });
    });
  }
  /// Runs sends and receives at once; see `Collective::group`. Each may have its own type.
  [[nodiscard]] Result<void> group(std::span<const AnyMessage> messages, Stream stream = {},
                                   std::string_view which = {}) const
    requires is_p2p
  {
    return detail::guarded(comm_, [&]() -> Result<void> {
      std::vector<typename First::P2pOp> p2p_ops;
      for (const AnyMessage& m : messages) {
        CCL_CHECK(check_type(m.type));
        p2p_ops.push_back({m.sends, m.data, m.count, size_of(m.type), m.peer});
      }
      CCL_TRY(const int at, pick(any_size, DataType::uint8, which));
      return call(at,
                  [&]<class C>(const auto& one) { return one.group(std::span{p2p_ops}, stream); });
    });
  }
  /// Sends `count` elements to rank `to`; see `Collective`.
  [[nodiscard]] Result<void> send(const void* data, Index count, DataType type, int to,
                                  Stream stream = {}, std::string_view which = {}) const
    requires is_p2p
  {
    const AnyMessage message{true, const_cast<void*>(data), count, type, to};
    return group({&message, 1}, stream, which);
  }
  /// Receives `count` elements from rank `from`; see `Collective`.
  [[nodiscard]] Result<void> recv(void* data, Index count, DataType type, int from,
                                  Stream stream = {}, std::string_view which = {}) const
    requires is_p2p
  {
    const AnyMessage message{false, data, count, type, from};
    return group({&message, 1}, stream, which);
  }

  /// Returns the names of all candidates in the list: "Ring/LL/any, Ring/Simple/any".
  static std::string names() {
    std::string all;
    ((all += (all.empty() ? "" : ", ") + name_of<Cs>()), ...);
    return all;
  }
  /// Returns the candidate of a call of `count` elements that names none.
  [[nodiscard]] Result<std::string> choice(Index count, DataType type) const {
    return detail::without_exceptions([&]() -> Result<std::string> {
      CCL_TRY(const int at, pick(is_v || is_p2p ? any_size : count, type, {}));
      std::string name;
      each([&]<std::size_t I, class C>() {
        if (int(I) == at) name = name_of<C>();
      });
      return name;
    });
  }

 private:
  static constexpr Index any_size = -1;
  using First = typename std::tuple_element_t<0, std::tuple<Cs...>>::template On<Op>;

  explicit AnyCollective(Communicator comm) : comm_{std::move(comm)} {}

  /// Calls f<index, candidate>() for each candidate of the list.
  template <class F>
  static void each(F&& f) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (f.template operator()<I, Cs>(), ...);
    }(std::index_sequence_for<Cs...>{});
  }
  template <class C>
  static std::string name_of() {
    return detail::concat({C::algo, "/", C::proto, "/", C::transport});
  }
  template <std::size_t I, class C>
  [[nodiscard]] Result<void> make() {
    if constexpr (!detail::is_auto<typename C::Algorithm>) {  // which asks for itself
      const auto left =
          detail::agree_on(comm_, detail::concat({Op::name, "/", name_of<C>()}),
                           detail::may_compose(Op::name, C::algo, C::proto, comm_.device() >= 0));
      if (!left && left.error().code == Errc::bad_setting) return {};
      CCL_CHECK(left);
    }
    CCL_TRY(auto one, C::template On<Op>::create(comm_));
    std::get<I>(calls_).emplace(std::move(one));
    return {};
  }
  int usable() const {
    return std::apply([](const auto&... call) { return (0 + ... + int(call.has_value())); },
                      calls_);
  }

  cuda::std::unexpected<Error> annotate(Errc code, std::string what) const {
    Error error{code, std::move(what)};
    error.rank = comm_.rank();
    error.host = comm_.peer(error.rank).host;
    return fail(std::move(error));
  }
  cuda::std::unexpected<Error> not_listed(std::string what, std::string there) const {
    return annotate(Errc::not_supported, detail::concat({Op::name, " has no code for ", what,
                                                         " in this program (it lists ", there,
                                                         "); add it to the AnyCollective"}));
  }
  [[nodiscard]] Result<void> check_type(DataType type) const {
    if (int(type) >= 0 && int(type) < data_type_count) return {};
    return not_listed("type number " + std::to_string(int(type)), data_type_names());
  }

  using Able = std::array<bool, sizeof...(Cs)>;
  static constexpr Able all_able() {
    Able all{};
    all.fill(true);
    return all;
  }
  /// Returns the candidates that support this reduction, or all if none does. The call then fails
  /// with the list.
  static Able able(DataType type, const RedOp& op) {
    Able found{};
    each([&]<std::size_t I, class C>() { found[I] = (reduces<C, Ts>(type, op) || ...); });
    return found == Able{} ? all_able() : found;
  }
  template <class C, class T>
  static bool reduces(DataType type, const RedOp& op) {
    return data_type_of<T> == type && ((op.name() == Fs::name && runs<C, T, Fs>()) || ...);
  }

  /// Returns the index of the candidate for a call. A candidate that the call names may be unable
  /// to run it.
  [[nodiscard]] Result<int> pick(Index count, DataType type, std::string_view which,
                                 const Able& able = all_able()) const {
    CCL_CHECK(check_type(type));
    Index bytes = std::numeric_limits<Index>::max();
    const bool times_ranks = is_one_of<Op, AllGather, ReduceScatter, AllToAll, Gather, Scatter>;
    if (count >= 0) bytes = count * size_of(type) * (times_ranks ? comm_.ranks() : 1);
    int first = -1, last = -1;
    bool listed = false;
    each([&]<std::size_t I, class C>() {
      const std::string name = which.empty() ? std::string{} : name_of<C>();
      // A name matches in whole parts: "Ring" matches Ring/LL, "Ring/L" does not.
      const bool asked = which.empty() ? able[I]
                                       : name.starts_with(which) && (name.size() == which.size() ||
                                                                     name[which.size()] == '/');
      listed = listed || asked;
      if (!asked || !std::get<I>(calls_)) return;
      const bool fits = which.empty() ? bytes <= C::max_bytes : true;
      if (first < 0 && fits) first = int(I);
      last = int(I);
    });
    if (first >= 0) return first;
    if (last >= 0) return last;
    if (!listed) return not_listed(std::string{which}, names());
    return annotate(Errc::bad_setting,
                    detail::concat({Op::name, " may not run ",
                                    which.empty() ? "what runs this reduction" : which,
                                    " (CCL_ALGO or CCL_PROTO exclude it); unset them"}));
  }

  /// Calls f<candidate>(collective of the candidate).
  template <class F>
  [[nodiscard]] Result<void> call(int at, F&& f) const {
    Result<void> result;
    each([&]<std::size_t I, class C>() {
      if (int(I) == at) result = f.template operator()<C>(*std::get<I>(calls_));
    });
    return result;
  }

  /// Calls `f` for data that only moves. It is cheap, because only the label and the size of a type
  /// differ between calls.
  template <class F>
  [[nodiscard]] Result<void> move(DataType type, Result<int> at, F&& f) const {
    CCL_CHECK(at);
    return call(*at, [&]<class C>(const auto& one) {
      return with_type(type, [&]<class T>(TypeTag<T>) { return f.template operator()<T>(one); });
    });
  }

  /// Calls f<T, F>(collective, functor) with the element type and the functor of the call.
  template <class G>
  [[nodiscard]] Result<void> reduce(DataType type, const RedOp& op, Result<int> at, G&& g) const {
    CCL_CHECK(at);
    if (!((data_type_of<Ts> == type) || ...)) {
      return not_listed(detail::concat({"type ", ccl::name(type)}),
                        list({ccl::name(data_type_of<Ts>)...}));
    }
    if (!((op.name() == Fs::name) || ...)) {
      return not_listed(detail::concat({"reduction ", op.name()}), list({Fs::name...}));
    }
    return call(*at, [&]<class C>(const auto& one) {
      Result<void> result;
      (on_type<C, Ts>(type, op, one, g, result), ...);
      return result;
    });
  }
  template <class C, class T, class One, class G>
  void on_type(DataType type, const RedOp& op, const One& one, G& g, Result<void>& result) const {
    if (data_type_of<T> != type) return;
    (on_functor<C, T, Fs>(op, one, g, result), ...);
  }
  template <class C, class T, class F, class One, class G>
  void on_functor(const RedOp& op, const One& one, G& g, Result<void>& result) const {
    if (op.name() != F::name) return;
    if constexpr (runs<C, T, F>()) {
      const auto functor = op.template as<F>();
      if (functor) {
        result = g.template operator()<T, F>(one, *functor);
      } else {
        result =
            annotate(Errc::invalid_argument,
                     detail::concat({F::name,
                                     " needs its value (only its name, or a functor of another "
                                     "type, was given on rank ",
                                     std::to_string(comm_.rank()), "); pass the functor"}));
      }
    } else {
      result =
          not_listed(detail::concat({F::name, " of ", detail::type_label<T>(), " by ", C::algo}),
                     "what that algorithm can reduce");
    }
  }
  template <class C, class T, class F>
  static constexpr bool runs() {
    using Algo = typename C::Algorithm;
    if constexpr (!ReduceOp<F, accumulate_t<T>>) {
      return false;
    } else if constexpr (detail::is_auto<Algo>) {
      return true;
    } else {
      return detail::runs_reduction<Algo, typename C::Protocol, F, T>() &&
             detail::network_knows<Algo, T>;
    }
  }
  static std::string list(std::initializer_list<std::string_view> names) {
    std::string all;
    for (const std::string_view name : names) {
      all += detail::concat({all.empty() ? "" : ", ", name});
    }
    return all;
  }

  Communicator comm_;
  std::tuple<std::optional<typename Cs::template On<Op>>...> calls_;
};

}  // namespace ccl
