#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/types/operations.hpp>

namespace ccl::detail {

template <class Self>
struct Call<Broadcast, Self> : RefusesBuffers<Broadcast> {
  using RefusesBuffers<Broadcast>::operator();
  /// Copies `count` elements of `root` to every rank. `send` of the other ranks is not read.
  template <class T>
  [[nodiscard]] Result<void> operator()(const T* send, T* recv, Index count, int root,
                                        Stream stream = {}) const {
    const auto& self = static_cast<const Self&>(*this);
    return guarded(self.comm(), [&]() -> Result<void> {
      const auto& comm = self.comm();
      CCL_CHECK(check_root(comm, root));
      const bool sends = root == comm.rank();
      CCL_CHECK(
          check_buffers(comm, Broadcast::name, {send, sends ? 1 : 0, recv, 1, count, sizeof(T)}));
      const Index bytes = count * Index{sizeof(T)};
      const auto info = call_info<T>(Broadcast::name, count, root);
      if constexpr (Self::exchanges) {
        if (comm.ranks() == 1) return self.move_alone(send, recv, bytes, stream);
        MessageTable table{comm.ranks()};
        for (int p = 0; sends && p < comm.ranks(); ++p) table.send(p, send, bytes);
        table.recv(root, recv, bytes);
        return self.exchange(info, std::move(table), stream);
      } else {
        return self.move(info, send, recv, {bytes, 0, 0, false}, root, stream);
      }
    });
  }
};

}  // namespace ccl::detail
