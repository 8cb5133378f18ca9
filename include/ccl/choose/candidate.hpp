#pragma once

#include <ccl/algo/auto_tag.hpp>
#include <ccl/choose/forward.hpp>
#include <ccl/transport/any_of.hpp>
#include <ccl/types/operations.hpp>

#include <limits>

namespace ccl {
namespace detail {
/// Message bytes up to which a protocol is usually the fastest.
template <class Proto>
inline constexpr Index usual_most_bytes = !Proto::carries_flags ? std::numeric_limits<Index>::max()
                                          : Proto::line_bytes >= 128 ? Index{1} << 20
                                                                     : Index{64} << 10;
template <>
inline constexpr Index usual_most_bytes<Auto> = std::numeric_limits<Index>::max();
}  // namespace detail

/// Composition in the list of an `Auto` or an `AnyCollective`. `AnyCollective` uses it for messages
/// of up to `MostBytes` bytes if the call names no composition; `Auto` uses its cost model instead.
template <class Algo, class Proto, class Transport = DefaultTransport,
          Index MostBytes = detail::usual_most_bytes<Proto>>
struct Candidate {
  template <class Op>
  using On = Collective<Op, Algo, Proto, Transport>;
  using Algorithm = Algo;
  using Protocol = Proto;
  using Over = Transport;
  static constexpr Index max_bytes = MostBytes;
  static constexpr const char* algo = Algo::name;
  static constexpr const char* proto = Proto::name;
  static constexpr const char* transport = Transport::name;
};

/// Entry of an `AnyCollective` that chooses by the cost model: `Candidate<Auto, Auto>`.
template <class Choice, class Transport, Index MostBytes>
  requires(detail::is_auto<Choice> && !detail::is_deterministic<Choice>)
struct Candidate<Choice, Auto, Transport, MostBytes> {
  template <class Op>
  using On = Collective<Op, Choice, Auto, Transport>;
  using Algorithm = Choice;
  static constexpr Index max_bytes = MostBytes;
  static constexpr const char* algo = "Auto";
  static constexpr const char* proto = "Auto";
  static constexpr const char* transport = Transport::name;
};

// Candidate of an `Auto` for CPU ranks only (`OnCpus`) or for GPUs only (`OnGpus`).
template <class C>
struct OnCpus : C {
  static constexpr bool on_gpus = false;
};
template <class C>
struct OnGpus : C {
  static constexpr bool on_cpus = false;
};
// Candidate for functors that are not commutative, if the list has others for commutative ones. On
// CPU ranks its wires are connected at its first call.
template <class C>
struct ForOrder : C {
  static constexpr bool for_order = true;
};

// Candidate for protocols of small words. It is chosen only if no candidate with the same algorithm
// can write lines of 128 bytes that land whole, as among GPUs over PCIe.
template <class C>
struct ForTornLines : C {
  static constexpr bool for_torn_lines = true;
};

/// List of compositions for which a program holds code. Each candidate that reduces is instantiated
/// once for every type and reduction.
template <class... Cs>
struct Candidates {};

}  // namespace ccl
