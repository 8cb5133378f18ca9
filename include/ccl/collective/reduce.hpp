#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/types/operations.hpp>

namespace ccl::detail {

template <class Self>
struct Call<Reduce, Self> : RefusesBuffers<Reduce> {
  using RefusesBuffers<Reduce>::operator();
  /// Combines `count` elements of each rank. Only `root` receives the result; `recv` of the other
  /// ranks is not written. `Acc` is the type of the partial results.
  template <class Acc = void, class T, class F = Sum>
  [[nodiscard]] Result<void> operator()(const T* send, T* recv, Index count, F op, int root,
                                        Stream stream = {}) const {
    const auto& self = static_cast<const Self&>(*this);
    return guarded(self.comm(), [&]() -> Result<void> {
      const auto& comm = self.comm();
      CCL_CHECK(check_root(comm, root));
      CCL_CHECK(check_buffers(comm, Reduce::name,
                              {send, 1, recv, root == comm.rank() ? 1 : 0, count, sizeof(T)}));
      return self.template reduce<Acc>(send, recv, count, op, root, {count, 0, 0, false}, stream);
    });
  }
};

}  // namespace ccl::detail
