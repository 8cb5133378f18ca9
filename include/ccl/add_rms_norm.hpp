#pragma once

#include <ccl/row_work.hpp>

#include <cuda/std/cmath>

namespace ccl {

/// An epilogue: to each reduced row x, rounded to `T`, the residual is added, h = T(x + residual);
/// then out = T(h / sqrt(mean(h * h) + epsilon) * weight). Everything in float; `sum` and `out` are
/// complete on all ranks and have the same bits there.
template <class T>
struct AddRmsNorm {
  const T* residual = nullptr;  // rows * length; null: nothing is added
  T* sum = nullptr;             // h, rows * length, may be `residual`; null: not stored
  T* out = nullptr;             // rows * length
  const T* weight = nullptr;    // length; null: ones
  float epsilon = 1e-6f;

  bool aligned() const { return detail::rows_aligned(residual, sum, out, weight); }

  /// What needs no waiting for peers.
  template <class Row>
  struct Ahead {
    typename Row::template Run<T> residual[Row::pieces], weight[Row::pieces];
  };
  template <class Row>
  CCL_HD Ahead<Row> ahead(const Row& row) const {
    Ahead<Row> a{};
    CCL_UNROLL for (int p = 0; p < Row::pieces; ++p) {
      if (!row.has(p)) continue;
      if (residual != nullptr) a.residual[p] = row.load(residual, p);
      if (weight != nullptr) a.weight[p] = row.load_shared(weight, p);
    }
    return a;
  }
  template <class Row>
  CCL_HD void operator()(Row& row, const Ahead<Row>& a) const {
    using Run = typename Row::template Run<T>;
    constexpr int n = Row::per_piece;
    float squares = 0;
    CCL_UNROLL for (int p = 0; p < Row::pieces; ++p) {
      if (!row.has(p)) continue;
      float* const h = row.value[p];
      Run::pack(h).unpack(h);
      if (residual != nullptr) {
        float r[n];
        a.residual[p].unpack(r);
        CCL_UNROLL for (int i = 0; i < n; ++i) h[i] += r[i];
        Run::pack(h).unpack(h);
      }
      if (sum != nullptr) row.store(sum, p, h);
      CCL_UNROLL for (int i = 0; i < n; ++i) squares += h[i] * h[i];
    }
    const float mean = row.sum(squares) / float(row.length());
    const float scale = 1.0f / cuda::std::sqrt(mean + epsilon);
    CCL_UNROLL for (int p = 0; p < Row::pieces; ++p) {
      if (!row.has(p)) continue;
      float w[n], o[n];
      if (weight != nullptr) a.weight[p].unpack(w);
      CCL_UNROLL for (int i = 0; i < n; ++i) {
        o[i] = row.value[p][i] * scale * (weight != nullptr ? w[i] : 1.0f);
      }
      row.store(out, p, o);
    }
  }
};

}  // namespace ccl
