#include "verify.hpp"

#include <algorithm>
#include <cstring>

#include "pattern.hpp"

namespace ccl::perf {
namespace {

/// Returns the elements that rank `from` sends to rank `to` in an AllToAllV around `count`.
Index uneven(Index count, int from, int to) {
  return (from + to) % 2 == 0 ? count + count / 2 : count - count / 2;
}

}  // namespace

Shape Shape::of(const std::string& op, Index bytes, Index size, int ranks, int rank, int root) {
  Shape s;
  s.op = op;
  s.ranks = ranks;
  s.rank = rank;
  s.root = root;
  const double others = double(ranks - 1) / ranks;
  const Index all = std::max<Index>(bytes / size, 1), each = std::max<Index>(all / ranks, 1);
  const bool split = op != "all_reduce" && op != "reduce" && op != "broadcast" && op != "send_recv";
  s.count = split ? each : all;
  s.bytes = (split ? each * ranks : all) * size;
  s.bus_factor = op == "all_reduce" ? 2 * others : split ? others : 1;
  if (op == "all_to_all_v") {  // ranks with even numbers are alike, and ranks with odd numbers
    Index busiest = 0;
    for (int r = 0; r < std::min(ranks, 2); ++r) {
      Index leaves = 0;
      for (int p = 0; p < ranks; ++p) leaves += p == r ? 0 : uneven(each, r, p);
      busiest = std::max(busiest, leaves);
    }
    s.bus_factor = double(busiest) / double(each * ranks);
  }
  if (ranks == 1) s.bus_factor = 1;
  s.send_count = s.recv_count = s.count;
  if (op == "all_gather" || op == "gather") s.recv_count = each * ranks;
  if (op == "reduce_scatter" || op == "scatter") s.send_count = each * ranks;
  if (op == "all_to_all") s.send_count = s.recv_count = each * ranks;
  if (op == "all_to_all_v") {
    Index sent = 0, received = 0, most = 0;
    for (int p = 0; p < ranks; ++p) {
      s.send_counts.push_back(uneven(each, rank, p));
      s.recv_counts.push_back(uneven(each, p, rank));
      s.send_offsets.push_back(sent);
      s.recv_offsets.push_back(received);
      sent += s.send_counts.back();
      received += s.recv_counts.back();
      most = std::max({most, sent, received});
    }
    s.send_count = sent;
    s.recv_count = received;
  }
  return s;
}

std::optional<Shape::Overlay> Shape::in_place() const {
  const Index mine = rank * count, all = std::max(send_count, recv_count);
  if (op == "all_reduce" || op == "reduce" || op == "broadcast") return Overlay{0, 0, all};
  if (op == "all_gather" || (op == "gather" && rank == root)) return Overlay{mine, 0, all};
  if (op == "reduce_scatter" || (op == "scatter" && rank == root)) return Overlay{0, mine, all};
  return {};
}

bool Shape::reduces() const {
  return op == "all_reduce" || op == "reduce" || op == "reduce_scatter";
}

Index Shape::reduced_from() const {
  return op == "reduce_scatter" ? rank * count : 0;
}

std::vector<Piece> Shape::pieces(Index size) const {
  const Index run = count * size;
  std::vector<Piece> all;
  if (op == "broadcast") return {{0, run, root, 0}};
  if (op == "send_recv") return {{0, run, (rank + ranks - 1) % ranks, 0}};
  if (op == "scatter") return {{0, run, root, rank * run}};
  if (reduces() || (op == "gather" && rank != root)) return all;
  for (int p = 0; p < ranks; ++p) {
    if (op == "all_to_all_v") {
      Index at = 0;  // offset in p's buffer of the data for this rank
      for (int q = 0; q < rank; ++q) at += uneven(count, p, q);
      all.push_back({recv_offsets[p] * size, recv_counts[p] * size, p, at * size});
    } else {
      all.push_back({p * run, run, p, op == "all_to_all" ? rank * run : 0});
    }
  }
  return all;
}

bool Shape::receives() const {
  return rank == root || (op != "reduce" && op != "gather");
}

void fill_send(const Shape& s, DataType type, RedOp redop, std::byte* send) {
  const Index size = size_of(type);
  if (!s.reduces()) {
    fill_moved(s.rank, s.send_count * size, send);
    return;
  }
  fill_values(type, redop, s.ranks, s.rank, s.send_count, send);
}

void fill_moved(int from, Index bytes, std::byte* send) {
  for (Index at = 0; at < bytes; at += 8) {
    const Word word = moved_word(from, at >> 3);
    std::memcpy(send + at, &word, std::size_t(std::min<Index>(8, bytes - at)));
  }
}

void fill_values(DataType type, RedOp redop, int ranks, int rank, Index count, std::byte* send) {
  with_type(type, [&]<class T>(TypeTag<T>) {
    for (Index i = 0; i < count; ++i) {
      const T x = from_whole<T>(sent_value<T>(redop, ranks, rank, i));
      std::memcpy(send + i * Index{sizeof x}, &x, sizeof x);
    }
  });
}

void poison(std::byte* recv, Index bytes) {
  std::memset(recv, poison_byte, std::size_t(bytes));
}

Index count_moved(const Piece& piece, Index size, const std::byte* recv) {
  return with_bits(size, [&]<class Bits>(TypeTag<Bits>) {
    Index wrong = 0;
    for (Index i = 0; i < piece.bytes; i += size) {
      const Bits x = moved_element<Bits>(piece.from, piece.at + i);
      wrong += std::memcmp(recv + piece.to + i, &x, sizeof x) != 0;
    }
    return wrong;
  });
}

Index count_values(DataType type, RedOp redop, int ranks, Index first, Index count,
                   const std::byte* recv) {
  return with_type(type, [&]<class T>(TypeTag<T>) {
    Index wrong = 0;
    for (Index i = 0; i < count; ++i) {
      const T x = reduced_value<T>(redop, ranks, first + i);
      wrong += std::memcmp(recv + i * Index{sizeof x}, &x, sizeof x) != 0;
    }
    return wrong;
  });
}

Index count_wrong(const Shape& s, DataType type, RedOp redop, const std::byte* recv) {
  if (!s.receives()) return 0;
  if (s.reduces()) return count_values(type, redop, s.ranks, s.reduced_from(), s.count, recv);
  Index wrong = 0;
  for (const Piece& piece : s.pieces(size_of(type))) {
    wrong += count_moved(piece, size_of(type), recv);
  }
  return wrong;
}

}  // namespace ccl::perf
