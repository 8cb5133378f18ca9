#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/types/operations.hpp>

namespace ccl::detail {

template <class Self>
struct Call<ReduceScatter, Self> : RefusesBuffers<ReduceScatter> {
  using RefusesBuffers<ReduceScatter>::operator();
  /// Combines ranks * count elements of each rank. Rank r receives the r-th run of the result. In
  /// place if recv == send + rank * count. `Acc` is the type of the partial results.
  template <class Acc = void, class T, class F = Sum>
  [[nodiscard]] Result<void> operator()(const T* send, T* recv, Index count, F op = {},
                                        Stream stream = {}) const {
    const auto& self = static_cast<const Self&>(*this);
    return guarded(self.comm(), [&]() -> Result<void> {
      const auto& comm = self.comm();
      CCL_CHECK(check_buffers(comm, ReduceScatter::name,
                              {send, comm.ranks(), recv, 1, count, sizeof(T), -comm.rank()}));
      return self.template reduce<Acc>(send, recv, count, op, 0, {count, count, 0, false}, stream);
    });
  }
};

}  // namespace ccl::detail
