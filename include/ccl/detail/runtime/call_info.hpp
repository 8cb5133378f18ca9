#pragma once

#include <ccl/detail/base/put_name.hpp>
#include <ccl/element/data_type.hpp>
#include <ccl/types/word.hpp>

#include <cuda/std/type_traits>

#include <string_view>

namespace ccl::detail {

/// Description of a call, for checks between ranks and for messages. Trivially copyable.
struct CallInfo {
  char what[24] = {};   // "all_reduce"
  char type[16] = {};   // type of the elements
  char redop[32] = {};  // functor of the reduction; empty if none
  Index count = 0;      // as the caller passed it
  int root = -1;
  int composition = 0;  // number of the composition, in order of creation
  int element_bytes = 0;
  int counter = -1;  // see `CallCounters`; -1: none
  Word call = 0;     // number among the calls of this composition, counted from 1
  Word ticket = 0;   // entry in the flight recorder; 0: none
  Word number = 0;   // see `Operation::number`
  Word place = 0;    // `WindowPlaceWord` of a receive buffer that can lie in a window, or 0
};

/// Name of a composition, as `Operation::what` has it.
struct ShownName {
  explicit ShownName(std::string_view name) { put_name(text, name); }
  char text[48] = {};
};

template <class T>
std::string_view type_label() {
  if constexpr (has_data_type<T>) return ccl::name(data_type_of<T>);
  return "user type";
}
template <class F>
std::string_view redop_label() {
  if constexpr (requires { F::name; }) return F::name;
  return "user functor";
}
/// A functor that stands for several has a function `label`, which gives the one of the call.
template <class F>
std::string_view redop_label(const F& op) {
  if constexpr (requires { op.label(); }) {
    return op.label();
  } else {
    return redop_label<F>();
  }
}

/// Describes a call that moves elements of `T`.
template <class T>
[[gnu::always_inline]] inline CallInfo call_info(const char* what, Index count, int root,
                                                 std::string_view redop = {}) {
  CallInfo info;
  put_name(info.what, what);
  put_name(info.type, type_label<T>());
  put_name(info.redop, redop);
  info.count = count;
  info.root = root;
  info.element_bytes = int(sizeof(T));
  return info;
}

}  // namespace ccl::detail
