#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/types/operations.hpp>

namespace ccl::detail {

template <class Self>
struct Call<Scatter, Self> : RefusesBuffers<Scatter> {
  using RefusesBuffers<Scatter>::operator();
  /// Sends the p-th run of `root`'s `send` to rank p. `send` of the other ranks is not read. In
  /// place on the root if recv == send + root * count.
  template <class T>
  [[nodiscard]] Result<void> operator()(const T* send, T* recv, Index count, int root,
                                        Stream stream = {}) const {
    const auto& self = static_cast<const Self&>(*this);
    return guarded(self.comm(), [&]() -> Result<void> {
      const auto& comm = self.comm();
      CCL_CHECK(check_root(comm, root));
      const int runs = comm.rank() == root ? comm.ranks() : 0;
      CCL_CHECK(check_buffers(comm, Scatter::name,
                              {send, runs, recv, 1, count, sizeof(T), -comm.rank()}));
      const Index bytes = count * Index{sizeof(T)};
      MessageTable table{comm.ranks()};
      table.recv(root, recv, bytes);
      for (int p = 0; p < runs; ++p) table.send(p, bytes_at(send, p * bytes), bytes);
      return self.exchange(call_info<T>(Scatter::name, count, root), std::move(table), stream);
    });
  }
};

}  // namespace ccl::detail
