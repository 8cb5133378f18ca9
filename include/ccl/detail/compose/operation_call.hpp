#pragma once

#include <ccl/types/operations.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <span>
#include <type_traits>

namespace ccl::detail {

/// Tags of operations, as in <ccl/types/operations.hpp>.
template <class Op>
concept StatesOperation = requires {
  Op::reduces;
  Op::rooted;
  Op::cuts;
};

/// Call of an operation: its signatures and the checks of its arguments. A composition `Self`
/// derives from it and runs the call. Each <ccl/collective/OPERATION.hpp> defines one.
template <class Op, class Self>
struct Call {
  static_assert(StatesOperation<Op>,
                "ccl: the first argument of Collective must be an operation (AllReduce, AllGather, "
                "Broadcast, ...); algorithm, protocol and transport follow in this order");
  static_assert(!StatesOperation<Op> || !sizeof(Self*),
                "ccl: the call of this operation is in <ccl/collective/OPERATION.hpp>; include "
                "that or <ccl/collective.hpp>");
};

/// True if a call takes these types as its buffers.
template <class Send, class Recv, class S = std::decay_t<Send>, class R = std::decay_t<Recv>>
inline constexpr bool takes_buffers =
    std::is_pointer_v<S> && std::is_pointer_v<R> &&
    std::is_same_v<std::remove_const_t<std::remove_pointer_t<S>>, std::remove_pointer_t<R>>;

/// States what is wrong with buffers that a call does not take.
template <class Send, class Recv>
Result<void> refuse_buffers() {
  using S = std::decay_t<Send>;
  using R = std::decay_t<Recv>;
  constexpr bool pointers = std::is_pointer_v<S> && std::is_pointer_v<R>;
  constexpr bool writes = !std::is_const_v<std::remove_pointer_t<R>>;
  static_assert(pointers,
                "ccl: buffers are pointers to elements, such as data() of a std::vector; one that "
                "this rank does not use is a null pointer of that type");
  static_assert(!pointers || writes,
                "ccl: the receive buffer must not be const, because the call writes into it");
  static_assert(!pointers || !writes || takes_buffers<Send, Recv>,
                "ccl: send and recv must point to elements of one type");
  return {};
}

template <class T>
inline constexpr bool is_count = std::is_convertible_v<T, Index>;
template <class... Ts>
inline constexpr bool are_counts = (std::is_convertible_v<Ts, std::span<const Index>> && ...);
template <class...>
inline constexpr bool always_false = false;

/// Overloads of an operation's calls for arguments that they do not take. A compiler's list of
/// functions that do not match would not name the reason.
template <class Op>
struct RefusesBuffers {
  template <class Acc = void, class Send, class Recv, class... Rest>
    requires(!takes_buffers<Send, Recv>)
  [[nodiscard]] Result<void> operator()(Send&&, Recv&&, Rest&&...) const {
    return refuse_buffers<Send, Recv>();
  }
  template <class Acc = void, class Send, class Recv, class Count, class... Rest>
    requires(takes_buffers<Send, Recv> && !is_count<Count>)
  [[nodiscard]] Result<void> operator()(Send&&, Recv&&, Count&&, Rest&&...) const {
    static_assert(always_false<Count>, "ccl: the number of elements follows the two buffers");
    return {};
  }
};
template <>
struct RefusesBuffers<AllToAllV> {
  template <class Send, class Counts, class Offsets, class Recv, class... Rest>
    requires(!takes_buffers<Send, Recv>)
  [[nodiscard]] Result<void> operator()(Send&&, Counts&&, Offsets&&, Recv&&, Rest&&...) const {
    return refuse_buffers<Send, Recv>();
  }
  template <class Send, class Counts, class Offsets, class Recv, class RecvCounts,
            class RecvOffsets, class... Rest>
    requires(takes_buffers<Send, Recv> && !are_counts<Counts, Offsets, RecvCounts, RecvOffsets>)
  [[nodiscard]] Result<void> operator()(Send&&, Counts&&, Offsets&&, Recv&&, RecvCounts&&,
                                        RecvOffsets&&, Rest&&...) const {
    static_assert(always_false<Counts>,
                  "ccl: counts and offsets are spans of ccl::Index with one number for each rank, "
                  "such as a std::vector<ccl::Index>");
    return {};
  }
};
template <>
struct RefusesBuffers<SendRecv> {
  template <class Send, class Count, class To, class... Rest>
    requires(std::is_pointer_v<std::decay_t<Send>> && !(is_count<Count> && is_count<To>))
  [[nodiscard]] Result<void> operator()(Send&&, Count&&, To&&, Rest&&...) const {
    static_assert(always_false<Count>,
                  "ccl: the call takes (send, send_count, to, recv, recv_count, from); a message "
                  "one way is send(data, count, to) at one rank and recv(data, count, from) at the "
                  "other");
    return {};
  }
  template <class Send, class Recv, class... Rest>
    requires(!takes_buffers<Send, Recv>)
  [[nodiscard]] Result<void> operator()(Send&&, Index, int, Recv&&, Rest&&...) const {
    return refuse_buffers<Send, Recv>();
  }
  template <class Data, class... Rest>
    requires(!std::is_pointer_v<std::decay_t<Data>>)
  [[nodiscard]] Result<void> send(Data&&, Rest&&...) const {
    return refuse_buffers<Data, Data>();
  }
  template <class Data, class... Rest>
    requires(!takes_buffers<Data, Data>)
  [[nodiscard]] Result<void> recv(Data&&, Rest&&...) const {
    return refuse_buffers<Data, Data>();
  }
};

/// Returns the address `bytes` after `base`, a multiple of the size of an element. Keeps null.
template <class P>
P* bytes_at(P* base, Index bytes) {
  return base == nullptr ? nullptr : base + bytes / Index{sizeof(P)};
}

}  // namespace ccl::detail
