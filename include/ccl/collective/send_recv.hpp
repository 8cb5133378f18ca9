#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/types/operations.hpp>

#include <initializer_list>
#include <span>

namespace ccl::detail {

template <class Self>
struct Call<SendRecv, Self> : RefusesBuffers<SendRecv> {
  using RefusesBuffers<SendRecv>::operator();
  using RefusesBuffers<SendRecv>::send;
  using RefusesBuffers<SendRecv>::recv;

  using P2pOp = detail::P2pOp;
  /// Sends a message to `to` and receives one from `from`, at once. The buffers must lie apart,
  /// except that a rank's message to itself may stay in place.
  template <class T>
  [[nodiscard]] Result<void> operator()(const T* send, Index send_count, int to, T* recv,
                                        Index recv_count, int from, Stream stream = {}) const {
    return group({send_message(send, send_count, to), recv_message(recv, recv_count, from)},
                 stream);
  }
  template <class T>
  static P2pOp send_message(const T* data, Index count, int to) {
    return {true, const_cast<T*>(data), count, Index{sizeof(T)}, to};
  }
  template <class T>
  static P2pOp recv_message(T* data, Index count, int from) {
    static_assert(takes_buffers<T*, T*>,
                  "ccl: the receive buffer must not be const, because the call writes into it");
    return {false, data, count, Index{sizeof(T)}, from};
  }
  template <class T>
  [[nodiscard]] Result<void> send(const T* data, Index count, int to, Stream stream = {}) const {
    return group({send_message(data, count, to)}, stream);
  }
  template <class T>
    requires(takes_buffers<T*, T*>)
  [[nodiscard]] Result<void> recv(T* data, Index count, int from, Stream stream = {}) const {
    return group({recv_message(data, count, from)}, stream);
  }
  /// Sends and receives all messages at once, so no order of them deadlocks. Messages between two
  /// ranks are matched in the order in which each rank lists them.
  [[nodiscard]] Result<void> group(std::initializer_list<P2pOp> p2p_ops, Stream stream = {}) const {
    return group(std::span{p2p_ops.begin(), p2p_ops.size()}, stream);
  }
  [[nodiscard]] Result<void> group(std::span<const P2pOp> p2p_ops, Stream stream = {},
                                   Overlaps overlaps = Overlaps::refused) const {
    const auto& self = static_cast<const Self&>(*this);
    return guarded(self.comm(), [&] { return self.send_recv(p2p_ops, stream, overlaps); });
  }
};

}  // namespace ccl::detail
