#pragma once

#include <ccl/element/element.hpp>
#include <ccl/proto/lane_group.hpp>

namespace ccl::detail {

/// True if lanes move two tiles of the protocol as one. Such a protocol has a type `Pairs`, whose
/// `fit` states the groups and cells. The result is the same on all ranks.
template <class Proto, class Group, class T>
constexpr bool moves_pairs() {
  if constexpr (requires { typename Proto::Pairs; }) {
    constexpr int words = Element<T>::words_per_cell;
    return Element<T>::packed && Proto::Pairs::template fit<Group, words>;
  }
  return false;
}

template <class Proto, class Group, class T, bool moves = moves_pairs<Proto, Group, T>()>
struct PairLaneOf {
  using Type = void;
};
template <class Proto, class Group, class T>
struct PairLaneOf<Proto, Group, T, true> {
  using Type = typename Proto::Pairs::template Lane<Group, Element<T>::words_per_cell>;
};
/// Lane of such pairs; void if there are none.
template <class Proto, class Group, class T>
using PairLane = typename PairLaneOf<Proto, Group, T>::Type;

}  // namespace ccl::detail
