#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/types/operations.hpp>

namespace ccl::detail {

template <class Self>
struct Call<AllToAll, Self> : RefusesBuffers<AllToAll> {
  using RefusesBuffers<AllToAll>::operator();
  /// Sends the p-th run of `count` elements of `send` to rank p. The run that rank p sends becomes
  /// the p-th run of `recv`. The buffers must lie apart.
  template <class T>
  [[nodiscard]] Result<void> operator()(const T* send, T* recv, Index count,
                                        Stream stream = {}) const {
    const auto& self = static_cast<const Self&>(*this);
    return guarded(self.comm(), [&]() -> Result<void> {
      const auto& comm = self.comm();
      CCL_CHECK(check_buffers(comm, AllToAll::name,
                              {.send = send,
                               .send_runs = comm.ranks(),
                               .recv = recv,
                               .recv_runs = comm.ranks(),
                               .count = count,
                               .element_bytes = sizeof(T),
                               .apart = true}));
      const Index bytes = count * Index{sizeof(T)};
      const auto info = call_info<T>(AllToAll::name, count, -1);
      if constexpr (Self::exchanges) {
        MessageTable table{comm.ranks()};
        for (int p = 0; p < comm.ranks(); ++p) {
          table.send(p, bytes_at(send, p * bytes), bytes);
          table.recv(p, bytes_at(recv, p * bytes), bytes);
        }
        return self.exchange(info, std::move(table), stream);
      } else {
        return self.move(info, send, recv, {bytes, bytes, bytes, false}, 0, stream);
      }
    });
  }
};

}  // namespace ccl::detail
