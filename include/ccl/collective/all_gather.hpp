#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/types/operations.hpp>

namespace ccl::detail {

template <class Self>
struct Call<AllGather, Self> : RefusesBuffers<AllGather> {
  using RefusesBuffers<AllGather>::operator();
  /// Collects `count` elements of each rank. The elements of rank r become the r-th run of `recv`.
  /// In place if send == recv + rank * count.
  template <class T>
  [[nodiscard]] Result<void> operator()(const T* send, T* recv, Index count,
                                        Stream stream = {}) const {
    const auto& self = static_cast<const Self&>(*this);
    return guarded(self.comm(), [&]() -> Result<void> {
      const auto& comm = self.comm();
      CCL_CHECK(check_buffers(comm, AllGather::name,
                              {send, 1, recv, comm.ranks(), count, sizeof(T), comm.rank()}));
      const Index bytes = count * Index{sizeof(T)};
      const auto info = call_info<T>(AllGather::name, count, -1);
      if constexpr (Self::exchanges) {
        if (comm.ranks() == 1) return self.move_alone(send, recv, bytes, stream);
        MessageTable table{comm.ranks()};
        for (int p = 0; p < comm.ranks(); ++p) {
          table.send(p, send, bytes);
          table.recv(p, bytes_at(recv, p * bytes), bytes);
        }
        return self.exchange(info, std::move(table), stream);
      } else {
        return self.move(info, send, recv, {bytes, 0, bytes, false}, 0, stream);
      }
    });
  }
};

}  // namespace ccl::detail
