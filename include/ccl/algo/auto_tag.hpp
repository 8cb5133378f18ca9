#pragma once

namespace ccl {

/// Tag for the algorithm of a `Collective`, for its protocol or for both. Each call runs the
/// fastest candidate for its size. `AutoOf<Candidate<Ring, LL>, ...>` is a list of the program's
/// own; `Auto` is ccl's list for the operation.
template <class... Cs>
struct AutoOf {};
using Auto = AutoOf<>;

/// Tag like `AutoOf`, restricted to candidates that reduce every element in one order that depends
/// only on the number of ranks. The result has the same bits in every run, on every rank and for
/// every message size. docs/guide/summation_order.md lists the orders.
template <class... Cs>
struct DeterministicOf {};
using Deterministic = DeterministicOf<>;

namespace detail {
template <class T>
inline constexpr bool is_auto = false;
template <class... Cs>
inline constexpr bool is_auto<AutoOf<Cs...>> = true;
template <class... Cs>
inline constexpr bool is_auto<DeterministicOf<Cs...>> = true;
template <class T>
inline constexpr bool is_deterministic = false;
template <class... Cs>
inline constexpr bool is_deterministic<DeterministicOf<Cs...>> = true;
}  // namespace detail

}  // namespace ccl
