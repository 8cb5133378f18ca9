#pragma once

namespace ccl {

/// Tag for the algorithm of a `Collective`, for its protocol or for both. Each call runs the
/// fastest candidate of ccl's list for the operation.
struct Auto {};
/// `Auto` with a list of the program's own: `AutoOf<Candidate<Ring, LL>, ...>`.
template <class... Cs>
struct AutoOf {};

/// Tag like `Auto`, restricted to candidates that reduce every element in one order that depends
/// only on the number of ranks. The result has the same bits in every run, on every rank and for
/// every message size. docs/guide/summation_order.md lists the orders.
struct Deterministic {};
/// `Deterministic` with a list of the program's own.
template <class... Cs>
struct DeterministicOf {};

namespace detail {
template <class T>
inline constexpr bool is_auto = false;
template <>
inline constexpr bool is_auto<Auto> = true;
template <>
inline constexpr bool is_auto<Deterministic> = true;
template <class... Cs>
inline constexpr bool is_auto<AutoOf<Cs...>> = true;
template <class... Cs>
inline constexpr bool is_auto<DeterministicOf<Cs...>> = true;
template <class T>
inline constexpr bool is_deterministic = false;
template <>
inline constexpr bool is_deterministic<Deterministic> = true;
template <class... Cs>
inline constexpr bool is_deterministic<DeterministicOf<Cs...>> = true;
}  // namespace detail

}  // namespace ccl
