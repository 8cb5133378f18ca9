#pragma once

namespace ccl {

/// Stands for the algorithm of a `Collective`, or for its protocol, or for both: each call runs the
/// fastest for its size of a list of candidates. `AutoOf<Candidate<Ring, LL>, ...>` is one's own
/// list; `Auto` is ccl's for the operation.
template <class... Cs>
struct AutoOf {};
using Auto = AutoOf<>;

/// The same, but only of candidates that reduce every element in one order, which depends on the
/// number of ranks alone: the result has the same bits in every run, on every rank, and whatever
/// the size of the message around the element. docs/choosing.md has the orders.
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
