#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/types/operations.hpp>

namespace ccl::detail {

template <class Self>
struct Call<AllReduce, Self> : RefusesBuffers<AllReduce> {
  using RefusesBuffers<AllReduce>::operator();
  /// Combines `count` elements of each rank. Every rank receives the result. In place if send ==
  /// recv. `Acc` is the type of the partial results.
  template <class Acc = void, class T, class F = Sum>
  [[nodiscard]] Result<void> operator()(const T* send, T* recv, Index count, F op = {},
                                        Stream stream = {}) const {
    const auto& self = static_cast<const Self&>(*this);
    return guarded(self.comm(), [&]() -> Result<void> {
      CCL_CHECK(check_buffers(self.comm(), AllReduce::name, {send, 1, recv, 1, count, sizeof(T)}));
      return self.template reduce<Acc>(send, recv, count, op, 0, {count, 0, 0, true}, stream);
    });
  }
};

}  // namespace ccl::detail
