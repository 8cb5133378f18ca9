#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/algo/chunks.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/runtime/wire_tables.hpp>
#include <ccl/types/position.hpp>
#include <ccl/types/wire.hpp>

namespace ccl::detail {

/// One message of a pairwise exchange: bytes that go to, or come from, one peer.
struct Message {
  char* data = nullptr;  // the user's; only read where it is sent
  Index bytes = 0;
};

/// The messages of one direction, peer by peer: those of peer p are
/// message[begin[p]] ... message[begin[p + 1] - 1], in the order in which they travel.
struct Messages {
  const Message* message = nullptr;
  const int* begin = nullptr;  // ranks + 1
  Cursor* cursor = nullptr;    // channels * ranks: scratch
};

/// What one launch over wires is told. Trivially copyable; everything it points to outlives the
/// launch. `R` is the reduction, which also names the element type.
template <class R>
struct WireWork {
  explicit WireWork(const R& how) : reduction{how} {}

  const Wire* in = nullptr;   // from peer p on channel c: in[c * ranks + p]; no slots: no wire
  const Wire* out = nullptr;  // to peer p
  const RingPosition* rings = nullptr;  // one for each channel
  const TreePosition* trees = nullptr;  // one for each channel
  int rank = 0, ranks = 1, root = 0;
  int channels = 1, slice_steps = 1, chunk_steps = 1;
  int slot_bytes = 0;       // of every wire
  bool proxied = true;      // some of the wires are, or may be
  Index channel_bytes = 0;  // of a message of an exchange for each channel with a part; 0: all have
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

/// The same for an exchange of CPU lanes to which wires may still come.
struct OnDemandWork : WireWork<Bytes> {
  OnDemandWork(const WireWork<Bytes>& work, const Word* in_there, const Word* out_there)
      : WireWork<Bytes>{work}, there{in_there, out_there} {}

  const Word* there[2];  // wires in and out: not 0 where the peer's may be looked at (acquire)
};

/// The same for an exchange whose messages travel with the launch: a GPU need not fetch them.
struct ExchangeWork : WireWork<Bytes> {
  static constexpr int max_ranks = 64, max_messages = 144;
  explicit ExchangeWork(const WireWork<Bytes>& work) : WireWork<Bytes>{work} {}

  Message message[max_messages];  // sends, then receives
  int begin[2][max_ranks + 1];    // in `message`; of sends and of receives

  CCL_HD Messages sent() const { return {message, begin[0], sends.cursor}; }
  CCL_HD Messages received() const { return {message, begin[1], recvs.cursor}; }
};
static_assert(sizeof(ExchangeWork) <= 4000, "Kernel arguments beyond 4 KB want a newer driver.");

/// What every share's address is a multiple of, at most 16: buffers, and the strides between
/// shares.
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
