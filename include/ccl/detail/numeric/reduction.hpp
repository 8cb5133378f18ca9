#pragma once

#include <ccl/element/element.hpp>
#include <ccl/element/reduce_op.hpp>
#include <ccl/element/small_float.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

struct NoScale {};

template <class Acc>
concept DividesByInt = requires(Acc a, int n) {
  { a / n } -> cuda::std::convertible_to<Acc>;
};

/// True if elements of `T` are added up in `T` without overflow.
template <class T>
constexpr bool has_wide_range() {
  if constexpr (requires { Element<T>::wide_range; }) return Element<T>::wide_range;
  return true;
}

template <class T>
concept LiesInCells = requires {
  Element<T>::words_per_cell;
  Element<T>::per_cell;
};
/// True if elements of `T` become values of `Acc` and partial results become elements again.
template <class T, class Acc>
concept Converts = cuda::std::is_same_v<Acc, T> || requires(const T& element, const Acc& value) {
  static_cast<Acc>(Element<T>::widen(element));
  { Element<T>::narrow(static_cast<accumulate_t<T>>(value)) } -> cuda::std::convertible_to<T>;
};

template <class T>
CCL_HD constexpr T divide(const T& value, int ranks) {
  if constexpr (Integer<T> && sizeof(T) <= 4) {
    // CPUs have vector division of floats only. The truncated quotient equals that of the integers,
    // because the type holds both exactly. A GPU divides integers.
    using Wide = cuda::std::conditional_t<(sizeof(T) < sizeof(int)), int, T>;
    using Quotient = cuda::std::conditional_t<sizeof(T) <= 2, float, double>;
    NV_IF_ELSE_TARGET(NV_IS_DEVICE,
                      (return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(ranks));),
                      (return static_cast<T>(static_cast<Wide>(static_cast<Quotient>(value) /
                                                               static_cast<Quotient>(ranks)));))
  } else if constexpr (Integer<T>) {
    return static_cast<T>(value / static_cast<T>(ranks));
  } else if constexpr (cuda::std::is_floating_point_v<T>) {
    return value / static_cast<T>(ranks);
  } else {
    static_assert(DividesByInt<T>,
                  "ccl: Avg divides by the number of ranks, an int, and the accumulate type has "
                  "no such operator/; give it one, or use Sum");
    return static_cast<T>(value / ranks);
  }
}

/// Reduction of one call on elements of `T`: the functor, the number of ranks, and the type in
/// which elements are added up. A value: kernels take it by copy.
///
/// `prepare` takes a rank's own data. `widen` takes data that another rank has prepared. `combine`
/// works in `Acc`; `narrow` rounds a partial result, and `finish` the whole result.
///
/// For Avg of a type that overflows early (half, fp8), `prepare` scales by a power of two. Partial
/// sums on the wire stay in range, and only subnormals are rounded.
template <class Op, class T, class Acc = accumulate_t<T>>
struct Reduction {
  using Functor = Op;
  using Type = T;
  using Accumulate = Acc;
  static constexpr bool commutative = is_commutative<Op>;

  static_assert(detail::LiesInCells<T>,
                "ccl: a specialization of Element<T> must derive from Cell<T>");
  static_assert(detail::Converts<T, Acc>,
                "ccl: the accumulate type wants Acc Element<T>::widen(T) and "
                "T Element<T>::narrow(Acc); define both, or name an accumulate type that the "
                "elements convert to and from");
  static_assert(!detail::StatesCommutative<Op> || detail::CommutativeIsConstant<Op>,
                "ccl: a functor's `commutative` must be static constexpr bool");
  static_assert(detail::HasNameIfAny<Op>,
                "ccl: a functor's `name` must be static constexpr const char*");
  static_assert(detail::TravelsToKernels<Op>,
                "ccl: a reduction functor must be trivially copyable (kernels take it by value); "
                "let it hold plain values or pointers");
  static_assert(!detail::TravelsToKernels<Op> || ReduceOp<Op, Acc>,
                "ccl: a reduction functor must be callable as Acc(Acc, Acc) const, where Acc is "
                "the accumulate type of the elements (float for 16- and 8-bit floats)");
  static_assert(detail::has_operator<Op, Acc>(),
                "ccl: Sum, Avg and PreMulSum want the accumulate type's operator+, Prod its "
                "operator*, Min and Max its operator<; give it one, or a functor of your own");
  static_assert(cuda::std::is_trivially_copyable_v<Acc>,
                "ccl: an accumulate type must be trivially copyable (it lives in registers)");
  static_assert(!cuda::std::is_same_v<Op, PreMulSum> || cuda::std::is_convertible_v<double, Acc>,
                "ccl: PreMulSum needs an accumulate type that converts from double (its scalar); "
                "give it that constructor, or scale the data before a Sum");

  CCL_HD constexpr Reduction(Op functor, int rank_count) : op(functor), ranks(rank_count) {
    if constexpr (is_early_avg) {
      int power = 1;
      while (power < ranks) power *= 2;
      scale_ = static_cast<Acc>(1.0 / power);
    } else if constexpr (is_scaled) {
      if (!op.in_memory()) scale_ = op.template value<Acc>();
    }
  }

  /// Returns the reduction with a scalar read from memory, so that loops need not read it. Once per
  /// launch, on the processor that runs it.
  CCL_HD Reduction load() const {
    Reduction loaded = *this;
    loaded.load_here();
    return loaded;
  }
  /// Applies `load` in place. Without an assignment, which closures that hold values lack.
  CCL_HD void load_here() {
    if constexpr (is_scaled) {
      scale_ = scale();
      loaded_ = true;
    }
  }

  /// Converts this rank's own data.
  CCL_HD constexpr Acc prepare(const T& own) const { return scaled(widen(own)); }
  /// Converts data that another rank has prepared.
  CCL_HD constexpr Acc widen(const T& value) const {
    if constexpr (cuda::std::is_same_v<Acc, T>) {
      return value;
    } else {
      return static_cast<Acc>(Element<T>::widen(value));
    }
  }
  CCL_HD constexpr Acc combine(const Acc& a, const Acc& b) const {
    return static_cast<Acc>(op(a, b));
  }
  /// Rounds a partial result.
  CCL_HD constexpr T narrow(const Acc& value) const {
    if constexpr (cuda::std::is_same_v<Acc, T>) {
      return value;
    } else if constexpr (cuda::std::is_same_v<Acc, double> &&
                         cuda::std::is_same_v<accumulate_t<T>, float> && sizeof(T) < 4) {
      return Element<T>::narrow(detail::to_odd_float(value));
    } else {
      return Element<T>::narrow(static_cast<accumulate_t<T>>(value));
    }
  }
  /// Rounds the whole result.
  CCL_HD constexpr T finish(const Acc& value) const { return narrow(complete(value)); }

  /// `prepare` of a value in `Acc`.
  CCL_HD constexpr Acc scaled(const Acc& own) const {
    if constexpr (prepares) {
      return detail::product<Acc>(scale(), own);
    } else {
      return own;
    }
  }
  /// `finish` of a value that stays in `Acc`.
  CCL_HD constexpr Acc complete(const Acc& value) const {
    if constexpr (is_begun) {
      return value;
    } else if constexpr (is_early_avg) {
      return value / detail::product<Acc>(scale_, static_cast<Acc>(ranks));
    } else if constexpr (is_avg) {
      return detail::divide<Acc>(value, ranks);
    } else {
      return value;
    }
  }

  Op op;
  int ranks;

 private:
  static constexpr bool is_scaled = cuda::std::is_same_v<Op, PreMulSum>;
  static constexpr bool is_begun = cuda::std::is_same_v<Op, detail::AvgBegun>;
  static constexpr bool is_ended = cuda::std::is_same_v<Op, detail::AvgEnded>;
  static constexpr bool is_avg = cuda::std::is_same_v<Op, Avg> || is_begun || is_ended;
  static constexpr bool is_early_avg = is_avg && !detail::has_wide_range<T>();
  using Scale = cuda::std::conditional_t<is_scaled || is_early_avg, Acc, detail::NoScale>;

  CCL_HD constexpr Acc scale() const {
    if constexpr (is_scaled) {
      if (op.in_memory() && !loaded_) return widen(*static_cast<const T*>(op.address()));
    }
    return scale_;
  }

  Scale scale_{};
  bool loaded_ = false;

 public:
  /// True if `prepare` changes values. Otherwise data may be sent unchanged.
  static constexpr bool prepares = is_scaled || (is_early_avg && !is_ended);
  /// True if `finish` changes whole results.
  static constexpr bool completes = is_avg && !is_begun;
};

/// Reduces fragments element by element, in registers, and rounds once, at the end. The order of
/// the calls is the order of the reduction.
template <class R, int Words>
class CellReducer {
  using T = typename R::Type;
  using Acc = typename R::Accumulate;
  using E = Element<T>;

 public:
  static_assert(Words % E::words_per_cell == 0,
                "ccl: a fragment must hold whole cells (a multiple of words_per_cell of the "
                "element type)");

  /// Starts from this rank's own data.
  CCL_HD static CellReducer from_own(const R& reduction, const Fragment<Words>& f) {
    CellReducer reducer(reduction);
    reducer.load(f, reducer.value_);
    CCL_UNROLL for (int i = 0; i < count; ++i) {
      reducer.value_[i].set(reduction.scaled(reducer.value_[i].value));
    }
    return reducer;
  }
  /// Starts from data that another rank prepared.
  CCL_HD static CellReducer from_received(const R& reduction, const Fragment<Words>& f) {
    CellReducer reducer(reduction);
    reducer.load(f, reducer.value_);
    return reducer;
  }

  CCL_HD void add_own(const Fragment<Words>& f) {
    detail::Slot<Acc> other[count];
    load(f, other);
    CCL_UNROLL for (int i = 0; i < count; ++i) {
      value_[i].set(reduction_.combine(value_[i].value, reduction_.scaled(other[i].value)));
    }
  }
  CCL_HD void add_received(const Fragment<Words>& f) {
    detail::Slot<Acc> other[count];
    load(f, other);
    CCL_UNROLL for (int i = 0; i < count; ++i) {
      value_[i].set(reduction_.combine(value_[i].value, other[i].value));
    }
  }

  /// Returns a partial result for another rank.
  CCL_HD Fragment<Words> result() const { return store<false>(); }
  /// Returns the whole result.
  CCL_HD Fragment<Words> finish() const { return store<true>(); }

 private:
  static constexpr int cells = Words / E::words_per_cell;
  static constexpr int count = cells * E::per_cell;
  static constexpr bool whole_cells =
      cuda::std::is_same_v<Acc, accumulate_t<T>> && detail::ConvertsWholeCells<E>;

  explicit CCL_HD CellReducer(const R& reduction) : reduction_(reduction) {}

  CCL_HD void load(const Fragment<Words>& f, detail::Slot<Acc> (&to)[count]) const {
    CCL_UNROLL for (int c = 0; c < cells; ++c) {
      const Word* cell = f.word + c * E::words_per_cell;
      if constexpr (whole_cells) {
        Acc wide[E::per_cell];
        E::unpack(cell, wide);
        CCL_UNROLL for (int i = 0; i < E::per_cell; ++i) to[c * E::per_cell + i].set(wide[i]);
      } else {
        CCL_UNROLL for (int i = 0; i < E::per_cell; ++i) {
          to[c * E::per_cell + i].set(reduction_.widen(E::get(cell, i)));
        }
      }
    }
  }

  template <bool Finish>
  CCL_HD Fragment<Words> store() const {
    Fragment<Words> f{};
    CCL_UNROLL for (int c = 0; c < cells; ++c) {
      Word* cell = f.word + c * E::words_per_cell;
      if constexpr (whole_cells) {
        Acc wide[E::per_cell];
        CCL_UNROLL for (int i = 0; i < E::per_cell; ++i) {
          wide[i] = complete<Finish>(value_[c * E::per_cell + i].value);
        }
        E::pack(cell, wide);
      } else {
        CCL_UNROLL for (int i = 0; i < E::per_cell; ++i) {
          E::put(cell, i, reduction_.narrow(complete<Finish>(value_[c * E::per_cell + i].value)));
        }
      }
    }
    return f;
  }
  template <bool Finish>
  CCL_HD Acc complete(const Acc& value) const {
    if constexpr (Finish) return reduction_.complete(value);
    return value;
  }

  R reduction_;
  detail::Slot<Acc> value_[count];
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
