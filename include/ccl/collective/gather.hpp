#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/types/operations.hpp>

namespace ccl::detail {

template <class Self>
struct Call<Gather, Self> : RefusesBuffers<Gather> {
  using RefusesBuffers<Gather>::operator();
  /// Collects `count` elements of each rank into the runs of `root`'s `recv`. The other ranks may
  /// pass null for `recv`. In place on the root if send == recv + root * count.
  template <class T>
  [[nodiscard]] Result<void> operator()(const T* send, T* recv, Index count, int root,
                                        Stream stream = {}) const {
    const auto& self = static_cast<const Self&>(*this);
    return guarded(self.comm(), [&]() -> Result<void> {
      const auto& comm = self.comm();
      CCL_CHECK(check_root(comm, root));
      const int runs = comm.rank() == root ? comm.ranks() : 0;
      CCL_CHECK(
          check_buffers(comm, Gather::name, {send, 1, recv, runs, count, sizeof(T), comm.rank()}));
      const Index bytes = count * Index{sizeof(T)};
      MessageTable table{comm.ranks()};
      table.send(root, send, bytes);
      for (int p = 0; p < runs; ++p) table.recv(p, bytes_at(recv, p * bytes), bytes);
      return self.exchange(call_info<T>(Gather::name, count, root), std::move(table), stream);
    });
  }
};

}  // namespace ccl::detail
