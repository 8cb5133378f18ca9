#pragma once

#include <ccl/detail/base/bit_cast.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

#include <cuda/std/concepts>
#include <cuda/std/cstdint>
#include <cuda/std/type_traits>
#include <nv/target>

CCL_ANY_SPACE_BEGIN

namespace ccl {
namespace detail {
template <class A>
concept Integer = cuda::std::is_integral_v<A> && !cuda::std::is_same_v<A, bool>;

/// Unsigned type at least as wide as int, so that arithmetic wraps and is never promoted.
template <class A, bool Small = (sizeof(A) < sizeof(int))>
using Wrapping = cuda::std::make_unsigned_t<cuda::std::conditional_t<Small, int, A>>;

/// Returns `second ? b : a` by masks, because compilers do not vectorize `?:` on floats that may be
/// NaN.
template <class A>
CCL_HD constexpr A pick(bool second, A a, A b) {
  using Bits = cuda::std::conditional_t<sizeof(A) == 4, cuda::std::uint32_t, cuda::std::uint64_t>;
  const Bits mask = Bits{0} - Bits{second};
  return detail::bit_cast<A>((detail::bit_cast<Bits>(b) & mask) |
                             (detail::bit_cast<Bits>(a) & ~mask));
}
/// True if `A` is float or double. `smaller` and `larger` order numbers before NaNs.
template <class A>
concept FloatOrDouble = cuda::std::is_same_v<A, float> || cuda::std::is_same_v<A, double>;
template <FloatOrDouble A>
CCL_HD constexpr A smaller(A a, A b) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return ::fmin(a, b);), (return pick((b < a) | (a != a), a, b);))
}
template <FloatOrDouble A>
CCL_HD constexpr A larger(A a, A b) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return ::fmax(a, b);), (return pick((a < b) | (a != a), a, b);))
}

template <class A>
CCL_HD constexpr A product(const A& a, const A& b) {
  if constexpr (Integer<A>) {
    using U = Wrapping<A>;
    return static_cast<A>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return static_cast<A>(a * b);
  }
}
}  // namespace detail

// Reductions of NCCL. A program's own reduction is any trivially copyable functor `A(A, A)`. A
// functor whose order matters defines `static constexpr bool commutative = false`.

/// Sum. Integers wrap.
struct Sum {
  static constexpr const char* name = "sum";
  template <class A>
  CCL_HD constexpr A operator()(const A& a, const A& b) const {
    if constexpr (detail::Integer<A>) {
      using U = detail::Wrapping<A>;
      return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return static_cast<A>(a + b);
    }
  }
};

/// Product. Integers wrap.
struct Prod {
  static constexpr const char* name = "prod";
  template <class A>
  CCL_HD constexpr A operator()(const A& a, const A& b) const {
    return detail::product(a, b);
  }
};

/// Minimum. A number wins over a NaN, as in NCCL; the result is a NaN only if all values are NaN.
/// The sign of a minimum of +0 and -0 is unspecified.
struct Min {
  static constexpr const char* name = "min";
  template <class A>
  CCL_HD constexpr A operator()(const A& a, const A& b) const {
    if constexpr (detail::FloatOrDouble<A>) {
      return detail::smaller(a, b);
    } else {
      return b < a ? b : a;
    }
  }
};

/// Maximum. A number wins over a NaN, as in NCCL; the result is a NaN only if all values are NaN.
/// The sign of a maximum of +0 and -0 is unspecified.
struct Max {
  static constexpr const char* name = "max";
  template <class A>
  CCL_HD constexpr A operator()(const A& a, const A& b) const {
    if constexpr (detail::FloatOrDouble<A>) {
      return detail::larger(a, b);
    } else {
      return a < b ? b : a;
    }
  }
};

/// Sum divided by the number of ranks. Integers wrap in the sum, and the division truncates, as in
/// NCCL.
struct Avg : Sum {
  static constexpr const char* name = "avg";
};

/// Sum of each rank's data times that rank's scalar. The scalar is a value, converted to the
/// accumulate type, or it lies in memory and is read when the operation runs.
struct PreMulSum : Sum {
  static constexpr const char* name = "mulsum";

  explicit constexpr PreMulSum(double scalar) : real_(scalar) {}
  template <detail::Integer S>
  explicit constexpr PreMulSum(S scalar)
      : integer_(static_cast<cuda::std::int64_t>(scalar)), holds_(Holds::integer) {}
  /// Returns a reduction whose scalar is read from memory. `scalar` points to one element that is
  /// readable on the GPU or CPU that reduces, from the call until the operation is complete.
  template <class T>
  static constexpr PreMulSum at(const T* scalar) {
    PreMulSum op(0.0);
    op.memory_ = scalar;
    op.holds_ = Holds::address;
    return op;
  }

  /// True if the scalar is read from memory.
  CCL_HD constexpr bool in_memory() const { return holds_ == Holds::address; }
  /// Returns the address of the scalar, or null.
  CCL_HD constexpr const void* address() const { return memory_; }
  /// Returns the scalar; requires `!in_memory()`. A real scalar is truncated toward zero for
  /// integers and must fit int64.
  template <class A>
  CCL_HD constexpr A value() const {
    if constexpr (detail::Integer<A>) {
      return static_cast<A>(holds_ == Holds::integer ? integer_
                                                     : static_cast<cuda::std::int64_t>(real_));
    } else {
      return static_cast<A>(holds_ == Holds::integer ? static_cast<double>(integer_) : real_);
    }
  }

 private:
  enum class Holds { real, integer, address };
  double real_ = 0;
  cuda::std::int64_t integer_ = 0;
  const void* memory_ = nullptr;
  Holds holds_ = Holds::real;
};

namespace detail {
// Functors of an `Avg` in two reductions, where the second reduces the results of the first. The
// first leaves a sum, scaled as on the wire. The second divides by the number of all ranks.
struct AvgBegun : Sum {
  static constexpr const char* name = "avg";
};
struct AvgEnded : Sum {
  static constexpr const char* name = "avg";
};
/// Functors of a reduction in two steps.
template <class Op>
struct InTwo {
  static constexpr Op begun(const Op& op) { return op; }
  static constexpr Op ended(const Op& op) { return op; }
};
template <>
struct InTwo<Avg> {
  static constexpr AvgBegun begun(const Avg&) { return {}; }
  static constexpr AvgEnded ended(const Avg&) { return {}; }
};
template <>
struct InTwo<PreMulSum> {
  static constexpr PreMulSum begun(const PreMulSum& op) { return op; }
  static constexpr Sum ended(const PreMulSum&) { return {}; }
};

/// True if `Op` can be passed to a kernel by value. The second condition is for g++ 12: a closure
/// that holds values is no longer trivially copyable after std::tuple has tested whether it is
/// assignable.
template <class Op>
concept TravelsToKernels =
    cuda::std::is_trivially_copyable_v<Op> ||
    (cuda::std::is_trivially_copy_constructible_v<Op> &&
     cuda::std::is_trivially_destructible_v<Op> && !cuda::std::is_copy_assignable_v<Op>);
template <class Op, class A>
concept CombinesTwo = requires(const Op op, const A& a, const A& b) {
  { op(a, b) } -> cuda::std::convertible_to<A>;
};
template <class A>
concept Adds = requires(const A& a) { a + a; };
template <class A>
concept Multiplies = requires(const A& a) { a* a; };
template <class A>
concept Compares = requires(const A& a) { a < a; };
/// True if `A` has the operator that a reduction of ccl requires.
template <class Op, class A>
constexpr bool has_operator() {
  if constexpr (cuda::std::is_base_of_v<Sum, Op>) return Adds<A>;
  if constexpr (cuda::std::is_same_v<Op, Prod>) return Multiplies<A>;
  if constexpr (cuda::std::is_same_v<Op, Min> || cuda::std::is_same_v<Op, Max>) return Compares<A>;
  return true;
}
template <class Op>
concept StatesCommutative = requires { &Op::commutative; };
template <class Op>
concept CommutativeIsConstant =
    requires { typename cuda::std::bool_constant<bool(Op::commutative)>; };
template <class Op>
concept HasNameIfAny = !requires { &Op::name; } || requires {
  { Op::name } -> cuda::std::convertible_to<const char*>;
};
template <class Op>
constexpr bool find_commutative() {
  if constexpr (CommutativeIsConstant<Op>) return Op::commutative;
  return true;
}
}  // namespace detail

/// True if `Op` reduces values of `Acc`. The functor must be associative, const and trivially
/// copyable.
template <class Op, class Acc>
concept ReduceOp = detail::TravelsToKernels<Op> && detail::CombinesTwo<Op, Acc>;

/// True if an algorithm may swap the operands of `Op`.
template <class Op>
inline constexpr bool is_commutative = detail::find_commutative<Op>();

}  // namespace ccl

CCL_ANY_SPACE_END
