#include <ccl/detail/base/copies.hpp>
#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/exchange/short_messages.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "launch/short_wires.hpp"

namespace ccl::detail {
namespace {

/// Messages of a call that are still to be moved: a bit for each peer.
struct Left {
  std::uint64_t sends = 0, recvs = 0;
};
constexpr int max_ranks = 64;  // exchanges of more ranks take the usual way

/// Messages of one call, on the wires of its composition.
class ShortMoves {
 public:
  ShortMoves(const Connections& connections, MessageTable& table)
      : wires_{connections}, sends_{table.sends.view(nullptr)}, recvs_{table.recvs.view(nullptr)} {}

  /// Adds the message to or from `peer`, if there is one. Returns false if it is not short.
  template <bool Sends>
  bool add(int peer, std::uint64_t& left) const {
    const MessageRun run = messages<Sends>(peer);
    if (run.count == 0) return true;
    if (run.count > 1 || run.message->bytes > wires_.slice_bytes()) return false;
    if (run.message->bytes <= 0) return true;
    if (!wires_.is_shared<Sends>(peer)) return false;
    left |= std::uint64_t{1} << peer;
    if constexpr (Sends)
      __builtin_prefetch(wires_.wire<Sends>(peer).posted, 1);  // the peer read it
    return true;
  }
  /// Copies the messages of a rank to itself.
  void copy_own(int rank) const {
    const MessageRun from = messages<true>(rank), to = messages<false>(rank);
    for (int i = 0; i < from.count && i < to.count; ++i) {
      const Message &out = from.message[i], &in = to.message[i];
      if (out.data == in.data) continue;
      copy_here(in.data, out.data, std::size_t(min_of(out.bytes, in.bytes)));
    }
  }
  bool send(int peer, Word& step, bool only_sends, bool& lent) const {
    return wires_.send(peer, *messages<true>(peer).message, step, only_sends, lent);
  }
  bool recv(int peer, Word& step, SpinWait<HostMemory>& spin) const {
    return wires_.recv(peer, *messages<false>(peer).message, step, spin);
  }
  /// Waits until the peers of these bits have read what was lent to them.
  void await_lent(std::uint64_t peers, SpinWait<HostMemory>& spin) const {
    for (; peers != 0; peers &= peers - 1) wires_.await_lent(std::countr_zero(peers), spin);
  }

 private:
  template <bool Sends>
  MessageRun messages(int peer) const {
    const Messages& of = Sends ? sends_ : recvs_;
    return {of.message + of.begin[peer], of.begin[peer + 1] - of.begin[peer]};
  }

  const ShortWires wires_;
  const Messages sends_, recvs_;
};

}  // namespace

bool move_short_messages(Connections& connections, MessageTable& table) {
  if (!ShortWires::fit(connections)) return false;
  const int ranks = int(table.sends.size());
  if (ranks > max_ranks) return false;
  const int me = connections.comm().rank();
  const ShortMoves moves{connections, table};
  Left left;
  for (int p = 0; p < ranks; ++p) {
    if (p == me) continue;
    if (!moves.add<true>(p, left.sends) || !moves.add<false>(p, left.recvs)) return false;
  }
  // Sends first, because peers wait for them. A rank begins behind itself, so that not all ranks
  // begin with the same one.
  SpinWait<HostMemory> spin{connections.calls().watch};
  const auto visit = [me](std::uint64_t& left_of, auto&& move) {
    bool moved = false;
    const auto some = [&](std::uint64_t peers) {
      for (; peers != 0; peers &= peers - 1) {
        const int peer = std::countr_zero(peers);
        if (!move(peer)) continue;
        left_of &= ~(std::uint64_t{1} << peer);
        moved = true;
      }
    };
    const std::uint64_t ahead = left_of & ~std::uint64_t{0} << me;
    some(ahead);
    some(left_of & ~ahead & ((std::uint64_t{1} << me) - 1));
    return moved;
  };
  int waiting = -1;
  Word step = 0;
  const bool only_sends = left.recvs == 0;
  std::uint64_t lent_to = 0;
  const auto send = [&](int peer) {
    bool lent = false;
    if (!moves.send(peer, step, only_sends, lent)) return waiting = peer, false;
    lent_to |= std::uint64_t{lent} << peer;
    return true;
  };
  const auto recv = [&](int peer) {
    return moves.recv(peer, step, spin) || (waiting = peer, false);
  };
  bool moved = left.sends != 0 && visit(left.sends, send);
  moves.copy_own(me);
  while (true) {
    if (left.recvs != 0 && visit(left.recvs, recv)) moved = true;
    if ((left.sends | left.recvs) == 0 || (!moved && spin.ends(waiting, step))) break;
    moved = left.sends != 0 && visit(left.sends, send);
  }
  if (lent_to != 0) moves.await_lent(lent_to, spin);
  return true;
}

}  // namespace ccl::detail
