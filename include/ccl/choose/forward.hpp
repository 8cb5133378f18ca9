#pragma once

#include <ccl/algo/auto_tag.hpp>
#include <ccl/transport/any_of.hpp>

namespace ccl {

template <class Op, class Algo = Auto, class Proto = Auto, class Transport = DefaultTransport>
class Collective;

namespace detail {
template <class Op, class List, class Transport, bool OneOrder>
class AutoCollective;
template <class Op, class List, class Transport, bool OneOrder>
struct MadeCandidates;
}  // namespace detail

}  // namespace ccl
