#pragma once

#include <ccl/algo/chunks.hpp>
#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/runtime/wire_tables.hpp>
#include <ccl/types/position.hpp>
#include <ccl/types/wire.hpp>

namespace ccl::detail {

/// Message of a pairwise exchange: bytes to or from one peer.
struct Message {
  char* data = nullptr;  // the user's memory; read only if sent
  Index bytes = 0;
};

/// Messages of one direction, by peer. Those of peer p are
/// message[begin[p]] ... message[begin[p + 1] - 1], in the order in which they travel.
struct Messages {
  const Message* message = nullptr;
  const int* begin = nullptr;  // ranks + 1
  Cursor* cursor = nullptr;    // channels * ranks: scratch
};

/// Arguments of one launch over wires. Trivially copyable. All memory that it points to outlives
/// the launch. `R` is the reduction and names the element type.
template <class R>
struct WireWork {
  explicit WireWork(const R& how) : reduction{how} {}

  const Wire* in = nullptr;   // from peer p on channel c: in[c * ranks + p]; slots null: no wire
  const Wire* out = nullptr;  // to peer p
  const RingPosition* rings = nullptr;  // one per channel
  const TreePosition* trees = nullptr;  // one for each channel
  int rank = 0, ranks = 1, root = 0;
  int channels = 1, slice_steps = 1, chunk_steps = 1;
  int slot_bytes = 0;       // of every wire
  bool proxied = true;      // some of the wires may be proxied
  Index channel_bytes = 0;  // minimum part of a message per channel; 0: all channels share it
  int servers = 1;          // groups that share a channel's peers in an exchange
  Layout layout;
  const void* input = nullptr;
  void* output = nullptr;
  Messages sends, recvs;
  R reduction;
  AbortWatch watch;

  CCL_HD const Messages& sent() const { return sends; }
  CCL_HD const Messages& received() const { return recvs; }
};

/// Arguments of an exchange of CPU lanes whose wires are connected on demand.
struct OnDemandWork : WireWork<Bytes> {
  OnDemandWork(const WireWork<Bytes>& work, const Word* in_there, const Word* out_there)
      : WireWork<Bytes>{work}, there{in_there, out_there} {}

  const Word* there[2];  // wires in and out, by peer: not 0 if the wire is ready (acquire)
};

/// Arguments of an exchange with its messages, which a GPU then need not fetch from memory.
struct ExchangeWork : WireWork<Bytes> {
  static constexpr int max_ranks = 64, max_messages = 144;
  explicit ExchangeWork(const WireWork<Bytes>& work) : WireWork<Bytes>{work} {}

  Message message[max_messages];  // sends, then receives
  int begin[2][max_ranks + 1];    // in `message`; of sends and of receives

  CCL_HD Messages sent() const { return {message, begin[0], sends.cursor}; }
  CCL_HD Messages received() const { return {message, begin[1], recvs.cursor}; }
};
static_assert(sizeof(ExchangeWork) <= 4000, "Kernel arguments beyond 4 KB want a newer driver.");

/// Returns the alignment of all shares in bytes, at most 16: of the buffers and of the strides
/// between shares.
template <class R>
int alignment(const WireWork<R>& work) {
  Word bits = 16 | reinterpret_cast<cuda::std::uintptr_t>(work.input) |
              reinterpret_cast<cuda::std::uintptr_t>(work.output);
  if (!work.layout.split) {
    bits |= Word(work.layout.in_stride | work.layout.out_stride) * sizeof(typename R::Type);
  }
  return int(bits & -bits);
}

}  // namespace ccl::detail
