#pragma once

#include <ccl/detail/rows/work.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Epilogue that stores the reduced rows, rounded to `T`.
template <class T>
struct StoreRows {
  T* out = nullptr;  ///< rows * length elements

  bool aligned() const { return detail::rows_aligned(out); }

  struct Ahead {};
  template <class Row>
  CCL_HD Ahead ahead(const Row&) const {
    return {};
  }
  template <class Row>
  CCL_HD void operator()(Row& row, Ahead) const {
    CCL_UNROLL for (int p = 0; p < Row::pieces; ++p) {
      if (row.contains(p)) row.store(out, p, row.value[p]);
    }
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
