#include <ccl/detail/base/copies.hpp>
#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/exchange/short_messages.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace ccl::detail {
namespace {

using Memory = HostMemory;
constexpr int max_ranks = 64;

/// Begins to fetch the first lines of memory that follows soon: for stores, or for loads.
template <bool ForStores>
void fetch_ahead(const void* at, Index bytes) {
  constexpr Index line = 64, most = 8 * line;
  const char* const begin = static_cast<const char*>(at);
  for (Index n = 0; n < min_of(bytes, most); n += line) __builtin_prefetch(begin + n, ForStores);
}

/// Messages of a call that are still to be moved: a bit for each peer.
struct Left {
  std::uint64_t sends = 0, recvs = 0;
};

/// Ends of the wires of one call, and what this rank knows of their counts.
class ShortMoves {
 public:
  ShortMoves(const Connections& connections, MessageTable& table)
      : tables_{connections.tables()},
        ranks_{int(table.sends.size())},
        sends_{table.sends.view(nullptr)},
        recvs_{table.recvs.view(nullptr)},
        steps_{connections.plan().slice_steps},
        slice_bytes_{connections.plan().slot_bytes * steps_} {}

  /// Adds the message to or from `peer`, if there is one. Returns false if it is not short.
  template <bool Sends>
  bool add(int peer, std::uint64_t& left) const {
    const MessageRun run = messages<Sends>(peer);
    if (run.count == 0) return true;
    if (run.count > 1 || run.message->bytes > slice_bytes_) return false;
    if (run.message->bytes <= 0) return true;
    const Wire& on = wire<Sends>(peer);
    if (on.slots == nullptr || on.proxied || on.zero_copy != nullptr) return false;
    left |= std::uint64_t{1} << peer;
    if constexpr (Sends) __builtin_prefetch(on.posted, 1);  // the peer has read it meanwhile
    return true;
  }
  /// Copies the messages of a rank to itself.
  void copy_own(int rank) const {
    const MessageRun from = messages<true>(rank), to = messages<false>(rank);
    for (int i = 0; i < from.count && i < to.count; ++i) {
      const Message &out = from.message[i], &in = to.message[i];
      if (out.data != in.data)
        copy_here(in.data, out.data, std::size_t(min_of(out.bytes, in.bytes)));
    }
  }
  /// Sends the message to `peer` if its slots are free. Sets `step` to the steps done before.
  bool send(int peer, Word& step) const {
    const Wire& to = wire<true>(peer);
    Cursor& kept = cursor<true>(peer);
    step = *to.sent;
    const Index room = to.slot_count - steps_;
    if (kept.message != Cursor::seen || Index(step) - kept.done > room) {
      kept = {Cursor::seen, Index(Memory::load_credit(to.drained))};
      if (Index(step) - kept.done > room) return false;
    }
    const Message& message = *messages<true>(peer).message;
    copy_away(to.slot(step), message.data, std::size_t(message.bytes));
    Memory::store_release(to.posted, step + Word(steps_));  // the data, for `recv` of the peer
    Memory::store_relaxed(to.sent, step + Word(steps_));
    fetch_ahead<true>(to.slot(step + Word(steps_)), message.bytes);  // for the next message
    return true;
  }
  /// Receives the message of `peer` if it is there.
  bool recv(int peer, Word& step) const {
    const Wire& from = wire<false>(peer);
    Cursor& kept = cursor<false>(peer);
    step = *from.received;
    if (kept.message != Cursor::seen || kept.done - Index(step) < steps_) {
      kept = {Cursor::seen, Index(Memory::load_acquire(from.posted))};
      if (kept.done - Index(step) < steps_) return false;
    }
    const Message& message = *messages<false>(peer).message;
    copy_here(message.data, from.slot(step), std::size_t(message.bytes));
    Memory::store_credit(from.drained, step + Word(steps_));  // the slots are read
    Memory::store_relaxed(from.received, step + Word(steps_));
    const Word next = step + Word(steps_);
    if (kept.done - Index(next) >= steps_) fetch_ahead<false>(from.slot(next), message.bytes);
    return true;
  }

 private:
  template <bool Sends>
  MessageRun messages(int peer) const {
    const Messages& of = Sends ? sends_ : recvs_;
    return {of.message + of.begin[peer], of.begin[peer + 1] - of.begin[peer]};
  }
  template <bool Sends>
  const Wire& wire(int peer) const {
    return (Sends ? tables_.out : tables_.in)[peer];
  }

  template <bool Sends>
  Cursor& cursor(int peer) const {
    return tables_.cursors[Sends ? peer : ranks_ + peer];
  }

  const WireTables& tables_;
  const int ranks_;
  const Messages sends_, recvs_;
  const int steps_;
  const Index slice_bytes_;
};

}  // namespace

bool move_short_messages(Connections& connections, MessageTable& table) {
  CallState& calls = connections.calls();
  const WireTables& tables = connections.tables();
  const int ranks = int(table.sends.size());
  if (connections.plan().channels != 1 || ranks > max_ranks || tables.column_of != nullptr ||
      tables.cursors == nullptr || calls.watch.phases != nullptr || connections.closes_idle()) {
    return false;
  }
  const int me = connections.comm().rank();
  const ShortMoves moves{connections, table};
  Left left;
  for (int p = 0; p < ranks; ++p) {
    if (p == me) continue;
    if (!moves.add<true>(p, left.sends) || !moves.add<false>(p, left.recvs)) return false;
  }
  // Sends first, because peers wait for them. A rank begins behind itself, so that not all ranks
  // begin with the same one.
  SpinWait<Memory> spin{calls.watch};
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
  const auto send = [&](int peer) { return moves.send(peer, step) || (waiting = peer, false); };
  const auto recv = [&](int peer) { return moves.recv(peer, step) || (waiting = peer, false); };
  bool moved = left.sends != 0 && visit(left.sends, send);
  moves.copy_own(me);
  while (true) {
    if (left.recvs != 0 && visit(left.recvs, recv)) moved = true;
    if ((left.sends | left.recvs) == 0) return true;
    if (!moved && spin.ends(waiting, step)) return true;
    moved = left.sends != 0 && visit(left.sends, send);
  }
}

}  // namespace ccl::detail
