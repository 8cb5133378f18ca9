#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/detail/exchange/counted.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/host_launch.hpp>
#include <ccl/types/counted_rows.hpp>
#include <ccl/types/operations.hpp>

#include <span>
#include <utility>

namespace ccl::detail {

template <class Self>
struct Call<AllToAllV, Self> : RefusesBuffers<AllToAllV> {
  using RefusesBuffers<AllToAllV>::operator();
  /// Sends send_counts[p] elements from send + send_offsets[p] to rank p, and receives likewise.
  /// Counts and offsets are in elements, one for each rank; two ranks must agree on theirs.
  /// Received runs must lie apart, except that a rank's own run may stay in place.
  template <class T>
  [[nodiscard]] Result<void> operator()(const T* send, std::span<const Index> send_counts,
                                        std::span<const Index> send_offsets, T* recv,
                                        std::span<const Index> recv_counts,
                                        std::span<const Index> recv_offsets,
                                        Stream stream = {}) const {
    const auto& self = static_cast<const Self&>(*this);
    return guarded(self.comm(), [&]() -> Result<void> {
      CCL_TRY(MessageTable && table, table_of(self.comm(), send, {send_counts, send_offsets}, recv,
                                              {recv_counts, recv_offsets}, sizeof(T)));
      return self.exchange(call_info<T>(AllToAllV::name, -1, -1), std::move(table), stream);
    });
  }

  /// Runs AllToAllV with counts that lie in memory; see `CountedRows`. The rows of rank p begin at
  /// `recv + p * recv_stride` rows. GPUs need `OneShot`, CPU ranks `Pairwise`.
  ///
  /// The stream reads and writes the counts. A count beyond a stride fails with `Errc::overflow`,
  /// and none of its rows is written. The buffers must lie apart.
  template <class T>
  [[nodiscard]] Result<void> counted(const T* send, T* recv, const CountedRows& rows,
                                     Stream stream = {}) const {
    const auto& self = static_cast<const Self&>(*this);
    return guarded(self.comm(), [&]() -> Result<void> {
      using Algo = typename Self::Algorithm;
      using Proto = typename Self::Protocol;
      constexpr bool over_wires = !OverPeers<Algo>, over_peers = !over_wires;
      static_assert(takes_counts<AllToAllV, Algo, Proto>,
                    "ccl: counts that lie in memory take OneShot with LL or LL128, or Pairwise");
      Connections& connections = *self.connections_;
      CCL_CHECK(check_rows(connections.comm(), rows, sizeof(T), send, recv));
      const Index row_bytes = rows.row * Index{sizeof(T)};
      if (stream.recorder() != nullptr) {
        return fail(Errc::not_supported,
                    "a group takes no exchange whose counts lie in memory; call it on its own");
      }
      CountedWork work;
      work.send = reinterpret_cast<const char*>(send);
      work.recv = reinterpret_cast<char*>(recv);
      work.send_counts = rows.send_counts;
      work.recv_counts = rows.recv_counts;
      work.send_rows = rows.send_rows;
      work.row_bytes = row_bytes;
      work.send_side = static_cast<const char*>(rows.send_side);
      work.recv_side = static_cast<char*>(rows.recv_side);
      work.side_bytes = rows.side_bytes;
      work.send_stride = int(rows.send_stride);
      work.recv_stride = int(rows.recv_stride);
      const auto info = call_info<T>(AllToAllV::name, rows.row * rows.recv_stride, -1);
      if constexpr (over_peers) {
        register_kernels<CountedKernels<Algo, Proto>>();
        if (connections.on_device()) {
          return counted_on_device<Algo, Proto>(self.connections_, info, work, stream);
        }
      }
      if constexpr (over_wires && Self::exec_sides.cpus) {
        if (!connections.on_device()) {
          return queue_on_host(self.connections_, info, stream, [work](QueuedCall&& call) {
            return counted_on_host<AllToAllV, Algo, Proto>(std::move(call), work);
          });
        }
      }
      return fail(no_counts(connections));
    });
  }
};

}  // namespace ccl::detail
