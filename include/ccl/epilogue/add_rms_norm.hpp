#pragma once

#include <ccl/detail/rows/work.hpp>
#include <ccl/types/macros.hpp>

#include <cuda/std/cmath>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Epilogue that adds a residual and normalizes. Each reduced row x is rounded to `T`.
/// - h = T(x + residual)
/// - out = T(h / sqrt(mean(h * h) + epsilon) * weight)
/// All arithmetic is in float. `sum` and `out` are complete on all ranks, with the same bits.
template <class T>
struct AddRmsNorm {
  const T* residual = nullptr;  ///< rows * length elements; null: no residual
  T* sum = nullptr;             ///< h, rows * length elements, may be `residual`; null: not stored
  T* out = nullptr;             ///< rows * length elements
  const T* weight = nullptr;    ///< length elements; null: ones
  float epsilon = 1e-6f;

  bool aligned() const { return detail::rows_aligned(residual, sum, out, weight); }

  /// Values that are loaded before the wait for the peers.
  template <class Row>
  struct Ahead {
    typename Row::template Run<T> residual[Row::pieces], weight[Row::pieces];
  };
  template <class Row>
  CCL_HD Ahead<Row> ahead(const Row& row) const {
    Ahead<Row> a{};
    CCL_UNROLL for (int p = 0; p < Row::pieces; ++p) {
      if (!row.contains(p)) continue;
      if (residual != nullptr) a.residual[p] = row.load(residual, p);
      a.weight[p] = weight != nullptr ? row.load_shared(weight, p) : ones<Row>();
    }
    return a;
  }
  template <class Row>
  CCL_HD void operator()(Row& row, const Ahead<Row>& a) const {
    using Run = typename Row::template Run<T>;
    constexpr int n = Row::per_piece;
    float squares = 0;
    CCL_UNROLL for (int p = 0; p < Row::pieces; ++p) {
      if (!row.contains(p)) continue;
      float* const h = row.value[p];
      Run run = Run::pack(h);
      if (residual != nullptr) run = run.plus(a.residual[p]);
      if (sum != nullptr) row.store(sum, p, run);
      run.unpack(h);
      CCL_UNROLL for (int i = 0; i < n; ++i) squares += h[i] * h[i];
    }
    const float mean = row.sum(squares) / float(row.length());
    const float scale = 1.0f / cuda::std::sqrt(mean + epsilon);
    CCL_UNROLL for (int p = 0; p < Row::pieces; ++p) {
      if (!row.contains(p)) continue;
      float w[n], o[n];
      a.weight[p].unpack(w);
      CCL_UNROLL for (int i = 0; i < n; ++i) o[i] = row.value[p][i] * scale * w[i];
      row.store(out, p, o);
    }
  }

 private:
  template <class Row>
  CCL_HD static typename Row::template Run<T> ones() {
    float one[Row::per_piece];
    CCL_UNROLL for (float& o : one) o = 1;
    return Row::template Run<T>::pack(one);
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
