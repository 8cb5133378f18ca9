#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/element/data_type.hpp>
#include <ccl/element/reduce_op.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

#include <cuda/std/type_traits>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Arguments of a call in one word, which both ends of a wire compare: count, element type,
/// reduction and root. Counts from 2^40 on and roots from 2^15 on lose their high bits.
struct CallWord {
  static constexpr int other_type = 31;  // a type of the user
  static constexpr int no_redop = 15;    // bytes are moved
  static constexpr int no_root = 0x7fff;
  static constexpr const char* redops[] = {"another functor", "sum", "prod", "min", "max", "avg",
                                           "mulsum"};

  template <class R>
  CCL_HD static constexpr int type_of() {
    if constexpr (!has_data_type<typename R::Type> || !reduces<R>) {
      return other_type;
    } else {
      return int(data_type_of<typename R::Type>);
    }
  }
  template <class R>
  CCL_HD static constexpr int redop_of() {
    if constexpr (!reduces<R>) {
      return no_redop;
    } else {
      using F = typename R::Functor;
      return cuda::std::is_same_v<F, Sum>         ? 1
             : cuda::std::is_same_v<F, Prod>      ? 2
             : cuda::std::is_same_v<F, Min>       ? 3
             : cuda::std::is_same_v<F, Max>       ? 4
             : cuda::std::is_same_v<F, Avg>       ? 5
             : cuda::std::is_same_v<F, PreMulSum> ? 6
                                                  : 0;
    }
  }
  template <class R>
  CCL_HD static constexpr Word of(Index count, int root) {
    constexpr Word kind = (Word(type_of<R>()) << 4 | Word(redop_of<R>())) << 15;
    return Word(count) << 24 | kind | (Word(unsigned(root)) & Word(no_root));
  }

  Word word = 0;
  Index count() const { return Index(word >> 24); }
  int type() const { return int(word >> 19 & 31); }
  int redop() const { return int(word >> 15 & 15); }
  int root() const { return int(word & Word(no_root)); }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
