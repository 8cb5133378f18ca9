#pragma once

#include <ccl/element/element.hpp>
#include <ccl/proto/lane_group.hpp>

namespace ccl::detail {

/// Whether two tiles of a protocol can be moved as one: a protocol that has such lanes names them
/// `Pairs`, and says there which groups and cells they `fit`. All ranks find the same.
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
/// The lane of such pairs; void where there are none.
template <class Proto, class Group, class T>
using PairLane = typename PairLaneOf<Proto, Group, T>::Type;

}  // namespace ccl::detail
