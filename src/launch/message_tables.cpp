#include <ccl/detail/base/spare.hpp>
#include <ccl/detail/exchange/over_wires.hpp>
#include <ccl/detail/launch/arguments.hpp>
#include <ccl/types/operations.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "comm/state.hpp"

namespace ccl::detail {
namespace {
/// True if received messages lie in ascending order and apart, before or behind all that are sent:
/// `check_overlap` succeeds then.
bool lie_as_usual(const MessageTable& table) {
  const char *first_out = nullptr, *last_out = nullptr, *first_in = nullptr, *last_in = nullptr;
  for (const Message& m : table.sends.all()) {
    if (m.bytes <= 0) continue;
    if (first_out == nullptr || m.data < first_out) first_out = m.data;
    if (m.data + m.bytes > last_out) last_out = m.data + m.bytes;
  }
  for (const Message& m : table.recvs.all()) {
    if (m.bytes <= 0) continue;
    if (first_in == nullptr) first_in = m.data;
    if (m.data < last_in) return false;
    last_in = m.data + m.bytes;
  }
  return last_out <= first_in || last_in <= first_out;
}

[[gnu::noinline]] Result<void> check_each(const Communicator& comm, const char* op,
                                          const MessageTable& table) {
  struct Piece {
    const char *begin, *end;
    int peer;
    bool operator==(const Piece&) const = default;
  };
  // Sorted by address, without messages of no bytes.
  const auto list = [](const MessageList& of_peers, std::vector<Piece>& all) {
    for (std::size_t p = 0; p < of_peers.size(); ++p) {
      for (const Message& m : of_peers[p]) {
        if (m.bytes > 0) all.push_back({m.data, m.data + m.bytes, int(p)});
      }
    }
    std::sort(all.begin(), all.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  };
  const auto ends_before = [](const Piece& a, const Piece& b) { return a.end < b.end; };
  SpareVector<Piece> listed_outs, listed_ins;
  list(table.sends, *listed_outs);
  list(table.recvs, *listed_ins);
  const std::vector<Piece>&outs = *listed_outs, &ins = *listed_ins;
  for (std::size_t i = 1; i < ins.size(); ++i) {
    const Piece &before = ins[i - 1], &in = ins[i];
    if (before.end <= in.begin) continue;
    return fail(Access::state(comm)->annotate(
        {Errc::invalid_argument,
         fmt::format("{}: {} bytes from rank {} at {} overlap {} bytes from rank {} at {}; give "
                     "each rank's a place of their own",
                     op, before.end - before.begin, before.peer, fmt::ptr(before.begin),
                     in.end - in.begin, in.peer, fmt::ptr(in.begin))}));
  }
  if (outs.empty() || ins.empty()) return {};
  if (std::max_element(outs.begin(), outs.end(), ends_before)->end <= ins.front().begin ||
      std::max_element(ins.begin(), ins.end(), ends_before)->end <= outs.front().begin) {
    return {};  // usually two buffers
  }
  const auto hit = [&](const Piece& in, const Piece& out) -> Result<void> {
    return fail(Access::state(comm)->annotate(
        {Errc::invalid_argument,
         fmt::format("{}: {} bytes from rank {} at {} overlap {} bytes to rank {} at {}; give it "
                     "buffers that lie apart",
                     op, in.end - in.begin, in.peer, fmt::ptr(in.begin), out.end - out.begin,
                     out.peer, fmt::ptr(out.begin))}));
  };
  // Index of the piece that ends last among all pieces up to each. Sent pieces may overlap.
  SpareVector<std::size_t> ends_last;
  ends_last->resize(outs.size());
  std::vector<std::size_t>& last = *ends_last;
  for (std::size_t o = 1; o < outs.size(); ++o) {
    last[o] = outs[o].end > outs[last[o - 1]].end ? o : last[o - 1];
  }
  for (const Piece& in : ins) {
    if (in.peer == comm.rank()) {
      for (const Piece& out : outs) {
        if (out.begin < in.end && in.begin < out.end && !(out == in)) return hit(in, out);
      }
      continue;
    }
    const auto after =
        std::lower_bound(outs.begin(), outs.end(), in.end,
                         [](const Piece& out, const char* end) { return out.begin < end; });
    if (after == outs.begin()) continue;
    const Piece& out = outs[last[std::size_t(after - outs.begin()) - 1]];
    if (out.end > in.begin) return hit(in, out);
  }
  return {};
}
}  // namespace

Result<void> check_overlap(const Communicator& comm, const char* op, const MessageTable& table) {
  if (lie_as_usual(table)) return {};
  return check_each(comm, op, table);
}

namespace {
[[gnu::noinline, gnu::cold]] Result<void> wrong_own_messages(const Communicator& comm,
                                                             const char* op,
                                                             std::span<const Message> sent,
                                                             std::span<const Message> taken) {
  const int me = comm.rank();
  const auto bad = [&](std::string text) {
    return fail(Access::state(comm)->annotate({Errc::mismatch, std::move(text)}));
  };
  if (sent.size() != taken.size()) {
    return bad(
        fmt::format("{}: rank {} sends itself {} messages and takes {} (both ends are in one "
                    "call, or in one group); give a receive to each send",
                    op, me, sent.size(), taken.size()));
  }
  std::size_t m = 0;
  while (sent[m].bytes == taken[m].bytes) ++m;
  return bad(
      fmt::format("{}: rank {} sends itself {} bytes and takes {} (both ends must give the same "
                  "count and type)",
                  op, me, sent[m].bytes, taken[m].bytes));
}
/// Checks that this rank receives the messages that it sends itself, one by one. Messages of no
/// bytes are in neither list.
Result<void> check_own_messages(const Communicator& comm, const char* op,
                                const MessageTable& table) {
  const int me = comm.rank();
  if (me < 0) return {};  // a moved-from communicator, which the call reports
  const auto sent = table.sends[std::size_t(me)], taken = table.recvs[std::size_t(me)];
  bool same = sent.size() == taken.size();
  for (std::size_t m = 0; same && m < sent.size(); ++m) same = sent[m].bytes == taken[m].bytes;
  return same ? Result<void>{} : wrong_own_messages(comm, op, sent, taken);
}
}  // namespace

namespace {
/// True if no check of a buffer can fail, as for a call that `is_usual`.
bool is_usual(const CommState& state, const void* buffer, Index count, Index element_bytes) {
  return !state.limits.check && buffer != nullptr && count >= 0 && count < Index{1} << 32 &&
         element_bytes <= 4096;
}

Result<void> fill(MessageTable& table, const Communicator& comm, std::span<const P2pOp> p2p_ops,
                  Overlaps overlaps) {
  const CommState& state = *Access::state(comm);
  for (const P2pOp& op : p2p_ops) {
    CCL_CHECK(check_root(comm, op.peer));
    if (is_usual(state, op.data, op.count, op.element_bytes)) continue;
    CCL_CHECK(check_buffer(comm, op.sends ? "send" : "recv", op.data, op.count, op.element_bytes));
  }
  const auto enter = [&, me = comm.rank()](const P2pOp& op) {
    const Index bytes = op.count * op.element_bytes;
    // An empty message may lack its other end, so it must not be paired with one that is not empty.
    if (op.peer == me && bytes == 0) return;
    op.sends ? table.send(op.peer, op.data, bytes) : table.recv(op.peer, op.data, bytes);
  };
  // A list keeps each peer's messages in their order, and takes ascending peers best.
  constexpr std::size_t few = 8;
  constexpr auto by_peer = [](const P2pOp& a, const P2pOp& b) { return a.peer < b.peer; };
  if (p2p_ops.size() <= few || std::is_sorted(p2p_ops.begin(), p2p_ops.end(), by_peer)) {
    for (const P2pOp& op : p2p_ops) enter(op);
  } else {
    SpareVector<const P2pOp*> sorted;
    for (const P2pOp& op : p2p_ops) sorted->push_back(&op);
    std::sort(sorted->begin(), sorted->end(), [](const P2pOp* a, const P2pOp* b) {
      return std::pair{a->peer, a} < std::pair{b->peer, b};
    });
    for (const P2pOp* const op : *sorted) enter(*op);
  }
  if (overlaps == Overlaps::refused) CCL_CHECK(check_overlap(comm, SendRecv::name, table));
  return check_own_messages(comm, SendRecv::name, table);
}

/// Returns the address and bytes of the run of one rank in an AllToAllV.
Result<Message> run_of(const Communicator& comm, const char* what, const void* base, Index offset,
                       Index count, Index element_bytes) {
  CCL_CHECK(check_offset(comm, what, offset, count, element_bytes));
  char* const begin = static_cast<char*>(const_cast<void*>(base));
  char* const at = begin == nullptr || count == 0 ? begin : begin + offset * element_bytes;
  CCL_CHECK(check_buffer(comm, what, at, count, element_bytes));
  return Message{at, count * element_bytes};
}

/// Lists the runs of one side of an AllToAllV.
Result<void> fill(MessageList& list, const Communicator& comm, const char* what, const void* base,
                  const RunsOfRanks& side, Index element_bytes) {
  const CommState& state = *Access::state(comm);
  const int ranks = int(list.size());
  for (int p = 0; p < ranks; ++p) {
    const Index count = side.counts[std::size_t(p)], offset = side.offsets[std::size_t(p)];
    if (is_usual(state, base, count, element_bytes) && offset >= 0 && offset < Index{1} << 32) {
      char* const begin = static_cast<char*>(const_cast<void*>(base));
      list.add(p, {count == 0 ? begin : begin + offset * element_bytes, count * element_bytes});
    } else {
      CCL_TRY(const Message run, run_of(comm, what, base, offset, count, element_bytes));
      list.add(p, run);
    }
  }
  return {};
}

Result<void> fill(MessageTable& table, const Communicator& comm, const void* send,
                  const RunsOfRanks& sends, void* recv, const RunsOfRanks& recvs,
                  Index element_bytes) {
  for (const auto* side : {&sends, &recvs}) {
    CCL_CHECK(check_counts(comm, side->counts.size()));
    CCL_CHECK(check_counts(comm, side->offsets.size()));
  }
  CCL_CHECK(fill(table.sends, comm, "send", send, sends, element_bytes));
  CCL_CHECK(fill(table.recvs, comm, "recv", recv, recvs, element_bytes));
  CCL_CHECK(check_overlap(comm, AllToAllV::name, table));
  return check_own_messages(comm, AllToAllV::name, table);
}
}  // namespace

// Both have one return, so that the table is made where the caller keeps it.
Result<MessageTable> table_of(const Communicator& comm, std::span<const P2pOp> p2p_ops,
                              Overlaps overlaps) {
  Result<MessageTable> table{cuda::std::in_place, comm.ranks()};
  if (auto filled = fill(*table, comm, p2p_ops, overlaps); !filled) {
    table = fail(std::move(filled).error());
  }
  return table;
}
Result<MessageTable> table_of(const Communicator& comm, const void* send, const RunsOfRanks& sends,
                              void* recv, const RunsOfRanks& recvs, Index element_bytes) {
  Result<MessageTable> table{cuda::std::in_place, comm.ranks()};
  if (auto filled = fill(*table, comm, send, sends, recv, recvs, element_bytes); !filled) {
    table = fail(std::move(filled).error());
  }
  return table;
}

}  // namespace ccl::detail
