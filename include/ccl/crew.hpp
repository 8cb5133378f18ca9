#pragma once

#include <ccl/types.hpp>

namespace ccl::detail {

/// A body may have a last word. Groups that end together are a crew: a block on a GPU, a group on
/// CPUs; the groups of crew i of n are channels i, i + n, ... `body(group, channel)` returns what
/// `end(left, crew, lane, lanes)` is given once every group of the crew is through, on all lanes of
/// the crew. Every group of such a launch has a channel.
template <class Body>
concept EndsWithCrew = requires(const Body body, Word left) {
  body.end(left, 0, 0, 1);
};

}  // namespace ccl::detail
