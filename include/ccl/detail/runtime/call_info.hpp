#pragma once

#include <ccl/element/data_type.hpp>
#include <ccl/types/word.hpp>

#include <cuda/std/type_traits>

#include <string_view>

namespace ccl::detail {

/// What one call is, for checking between ranks and for messages. Trivially copyable.
struct CallInfo {
  char what[24] = {};   // "all_reduce"
  char type[16] = {};   // of the elements
  char redop[16] = {};  // of the reduction; empty if none
  Index count = 0;      // as the caller gave it
  int root = -1;
  int composition = 0;  // in order of creation
  Word call = 0;        // of this composition, from 1
  Word ticket = 0;      // in the journal; 0: not in it
  Word number = 0;      // see `Operation::number`
  Index place = -1;     // of the receive buffer in a window that peers write to; -1: none
};

template <class T>
std::string_view type_label() {
  if constexpr (has_data_type<T>) return ccl::name(data_type_of<T>);
  return "user type";
}
template <class F>
std::string_view redop_label() {
  if constexpr (cuda::std::is_void_v<F>) return "";
  if constexpr (requires { F::name; }) return F::name;
  return "user functor";
}

template <class T, class F>
CallInfo call_info(const char* what, Index count, int root) {
  CallInfo info;
  const auto put = [](auto& field, std::string_view text) { text.copy(field, sizeof field - 1); };
  put(info.what, what);
  put(info.type, type_label<T>());
  put(info.redop, redop_label<F>());
  info.count = count;
  info.root = root;
  return info;
}

}  // namespace ccl::detail
