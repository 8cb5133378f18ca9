#pragma once

#include <ccl/algo/chunks.hpp>
#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/runtime/wire_tables.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/position.hpp>
#include <ccl/types/wire.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Message of a pairwise exchange: bytes to or from one peer.
struct Message {
  char* data = nullptr;  // the user's memory; read only if sent
  Index bytes = 0;
};

/// Messages to or from one peer, in the order in which they travel.
struct MessageRun {
  const Message* message = nullptr;
  int count = 0;
};

/// Messages of one direction, by peer. Those of peer p are
/// message[begin[p]] ... message[begin[p + 1] - 1], in the order in which they travel.
struct Messages {
  const Message* message = nullptr;
  const int* begin = nullptr;  // ranks + 1
  Cursor* cursor = nullptr;    // channels * ranks: scratch
};

/// Wires of a launch, and how a message is divided over them. Equal for all types of elements.
struct LaunchWires {
  const Wire* in = nullptr;   // from peer p on channel c: in[row(c) + column(p)]; no slots: no wire
  const Wire* out = nullptr;  // to peer p
  const int* column_of = nullptr;       // column of each rank in large jobs; null: its number
  const RingPosition* rings = nullptr;  // one per channel
  const TreePosition* trees = nullptr;  // one for each channel
  const HostPosition* hosts = nullptr;  // one for each channel, of algorithms with a network
  int rank = 0, ranks = 1, root = 0;
  int channels = 1, slice_steps = 1, chunk_steps = 1;
  int columns = 0;       // of a row, if `column_of` is there
  int slot_packets = 0;  // of every wire
  int slot_count = 1;    // of every wire
  bool proxied = true;   // some of the wires may be proxied

  /// Returns the index of a channel's first wire in `in` and `out`.
  CCL_HD Index row(int channel) const {
    return Index{channel} * (column_of == nullptr ? ranks : columns);
  }
  CCL_HD int column(int peer) const { return column_of == nullptr ? peer : column_of[peer]; }
};

/// Arguments of one launch over wires. Trivially copyable. All memory that it points to outlives
/// the launch. `R` is the reduction and names the element type.
template <class R>
struct WireWork : LaunchWires {
  explicit CCL_HD WireWork(const R& how) : reduction{how} {}
  CCL_HD WireWork(const LaunchWires& wires, const R& how) : LaunchWires{wires}, reduction{how} {}

  Index channel_bytes = 0;  // minimum part of a message per channel; 0: all channels share it
  int servers = 1;          // groups that share a channel's peers in an exchange
  Layout layout;
  const void* input = nullptr;
  void* output = nullptr;
  Messages sends, recvs;
  R reduction;
  AbortWatch watch;

  /// Returns the messages to or from one peer.
  CCL_HD MessageRun run(bool to_peer, int peer) const {
    const Messages& of = to_peer ? sends : recvs;
    return {of.message + of.begin[peer], of.begin[peer + 1] - of.begin[peer]};
  }
  /// Returns the part of a message on a channel: whole lines of 128 bytes. Both ends of a message
  /// compute it from the same values.
  CCL_HD Message part(const Message& m, int channel) const {
    const Index lines = div_up<Index>(m.bytes, 128 * sharers(m.bytes));
    const Index begin = lines * 128 * channel;
    const Index left = m.bytes - begin;
    const Index bytes = left < 0 ? 0 : left < lines * 128 ? left : lines * 128;
    return {m.data + (left < 0 ? 0 : begin), bytes};
  }
  /// Returns the number of channels that share a message.
  CCL_HD Index sharers(Index bytes) const {
    const Index each = channel_bytes;
    if (each == 0 || bytes >= each * channels) return channels;
    return bytes <= each ? 1 : div_up(bytes, each);
  }
};

/// Arguments of an exchange of CPU lanes whose wires are connected on demand.
struct OnDemandWork : WireWork<Bytes> {
  OnDemandWork(const WireWork<Bytes>& work, const Word* in_there, const Word* out_there)
      : WireWork<Bytes>{work}, there{in_there, out_there} {}

  const Word* there[2];  // wires in and out, by peer: not 0 if the wire is ready (acquire)
};

/// Arguments of an exchange with its messages, which a GPU then need not fetch from memory. Only
/// peers with messages are listed, so the number of ranks has no limit.
struct ExchangeWork : WireWork<Bytes> {
  static constexpr int max_messages = 144;
  explicit ExchangeWork(const WireWork<Bytes>& work) : WireWork<Bytes>{work} {}

  /// Messages to or from one peer: `count` of them from `message[first]` on.
  struct Visit {
    int peer = 0;
    cuda::std::uint8_t first = 0, count = 0;
    bool sends = false;
  };
  Message message[max_messages];
  Visit visit[max_messages];  // in the order in which a round serves them
  int visits = 0;
  int messages = 0;
  Visit own[2];  // messages from and to this rank itself

  CCL_HD MessageRun run(const Visit& of) const { return {message + of.first, of.count}; }
  /// Returns the messages of this rank to itself, as sends or as receives.
  CCL_HD MessageRun run(bool to_peer, int) const { return run(own[to_peer ? 0 : 1]); }

  /// Returns the number of groups that share the peers of a channel, if a block holds `groups` of
  /// them. A poll of a peer over host memory takes a few microseconds, so each peer and direction
  /// has a group.
  ///
  /// The groups occupy at most 32 blocks, as many as NCCL takes for a network. The other
  /// multiprocessors compute meanwhile.
  int servers_on(int blocks, int groups) const {
    if (!proxied || visits < 2) return 1;
    constexpr int most = 32;
    const int room = (blocks < most ? blocks : most) * (groups < 4 ? groups : 4) / channels;
    return visits < room ? visits : room < 1 ? 1 : room;
  }
};
static_assert(ExchangeWork::max_messages < 256, "A visit counts messages in 8 bits.");
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

CCL_ANY_SPACE_END
