#include "verify.hpp"

#include <ccl/element.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace ccl::perf {
namespace {

bool is_reducing(const std::string& op) {
  return op == "all_reduce" || op == "reduce" || op == "reduce_scatter";
}

std::uint64_t mix_wide(std::uint64_t x) {
  x = (x + 0x9e37'79b9'7f4a'7c15) * 0xbf58'476d'1ce4'e5b9;
  x = (x ^ (x >> 29)) * 0x94d0'49bb'1331'11eb;
  return x ^ (x >> 32);
}
std::uint32_t mix(std::uint64_t x) {
  return std::uint32_t(mix_wide(x) >> 33);
}

/// Whole numbers up to this are exact in T.
template <class T>
constexpr int exact_below() {
  if constexpr (std::is_same_v<T, float8_e5m2>) return 8;
  if constexpr (std::is_same_v<T, float8_e4m3>) return 16;
  if constexpr (std::is_same_v<T, bfloat16>) return 256;
  if constexpr (std::is_same_v<T, float16>) return 2048;
  return 1 << 20;
}
template <>
constexpr int exact_below<std::int8_t>() {
  return 127;
}
template <>
constexpr int exact_below<std::uint8_t>() {
  return 255;
}

/// A rank's element, as a small whole number.
template <class T>
std::int64_t value(RedOp redop, int ranks, int rank, Index i) {
  const auto hash = mix(std::uint64_t(i));
  if (redop == RedOp::prod) {  // two ranks at most have a factor: the product stays exact
    const std::int64_t first = int(hash % unsigned(ranks)) == rank ? 1 + (hash >> 8) % 3 : 1;
    const std::int64_t second = int((hash >> 12) % unsigned(ranks)) == rank ? 2 : 1;
    return first * second;
  }
  if (redop == RedOp::min || redop == RedOp::max) {
    return 1 + mix(std::uint64_t(i) * 64 + std::uint64_t(rank)) % 7;
  }
  // The sum, doubled by mulsum, stays exact; with very many ranks only some add to it.
  const int limit = exact_below<T>() / (redop == RedOp::mulsum ? 2 : 1);
  if (rank >= limit) return 0;
  const int range = std::min(limit / std::min(ranks, limit), 1000);
  return (hash + unsigned(rank) * 7u) % unsigned(range + 1);
}

template <class T>
T from_whole(std::int64_t n) {
  if constexpr (std::is_integral_v<T>) {
    return T(n);
  } else {
    return Element<T>::narrow(accumulate_t<T>(n));
  }
}

template <class T>
T expected(RedOp redop, int ranks, Index i) {
  std::int64_t sum = 0, product = 1, least = value<T>(redop, ranks, 0, i), greatest = least;
  for (int r = 0; r < ranks; ++r) {
    const auto v = value<T>(redop, ranks, r, i);
    sum += v;
    product *= v;
    least = std::min(least, v);
    greatest = std::max(greatest, v);
  }
  switch (redop) {
    case RedOp::prod:
      return from_whole<T>(product);
    case RedOp::min:
      return from_whole<T>(least);
    case RedOp::max:
      return from_whole<T>(greatest);
    case RedOp::mulsum:
      return from_whole<T>(2 * sum);
    case RedOp::avg:
      if constexpr (std::is_integral_v<T>) {
        return T(sum / ranks);
      } else {
        using Wide = accumulate_t<T>;
        return Element<T>::narrow(Wide(sum) / Wide(ranks));
      }
    case RedOp::sum:
      break;
  }
  return from_whole<T>(sum);
}

/// Moved data is any bits.
unsigned char moved(int from, Index byte) {
  return static_cast<unsigned char>(
      mix_wide(std::uint64_t(byte >> 3) * 1024 + std::uint64_t(from)) >> (8 * (byte & 7)));
}

Index count_moved(const std::byte* recv, Index bytes, int from, Index at, Index size) {
  Index wrong = 0;
  for (Index i = 0; i < bytes; i += size) {
    bool same = true;
    for (Index b = i; b < i + size; ++b) {
      same = same && std::to_integer<unsigned char>(recv[b]) == moved(from, at + b);
    }
    wrong += !same;
  }
  return wrong;
}

/// Elements that rank `from` sends to rank `to` in an AllToAllV around `count`.
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

Index Shape::in_place_offset() const {
  if (op == "all_reduce" || op == "reduce" || op == "broadcast") return 0;
  if (op == "all_gather" || (op == "gather" && rank == root)) return rank * count;
  return -1;
}

void fill_send(const Shape& s, DataType type, RedOp redop, std::byte* send) {
  const Index size = size_of(type);
  if (!is_reducing(s.op)) {
    for (Index b = 0; b < s.send_count * size; ++b) send[b] = std::byte{moved(s.rank, b)};
    return;
  }
  with_type(type, [&]<class T>(TypeTag<T>) {
    for (Index i = 0; i < s.send_count; ++i) {
      const T x = from_whole<T>(value<T>(redop, s.ranks, s.rank, i));
      std::memcpy(send + i * size, &x, sizeof x);
    }
  });
}

void poison(std::byte* recv, Index bytes) {
  std::memset(recv, 0xa5, std::size_t(bytes));
}

Index count_wrong(const Shape& s, DataType type, RedOp redop, const std::byte* recv) {
  const Index size = size_of(type), run = s.count * size;
  if (is_reducing(s.op)) {
    if (s.op == "reduce" && s.rank != s.root) return 0;
    const Index first = s.op == "reduce_scatter" ? s.rank * s.count : 0;
    return with_type(type, [&]<class T>(TypeTag<T>) {
      Index wrong = 0;
      for (Index i = 0; i < s.count; ++i) {
        const T x = expected<T>(redop, s.ranks, first + i);
        wrong += std::memcmp(recv + i * size, &x, sizeof x) != 0;
      }
      return wrong;
    });
  }
  if (s.op == "broadcast") return count_moved(recv, run, s.root, 0, size);
  if (s.op == "send_recv") {
    return count_moved(recv, run, (s.rank + s.ranks - 1) % s.ranks, 0, size);
  }
  if (s.op == "scatter") return count_moved(recv, run, s.root, s.rank * run, size);
  if (s.op == "gather" && s.rank != s.root) return 0;
  Index wrong = 0;
  for (int p = 0; p < s.ranks; ++p) {
    if (s.op == "all_to_all_v") {
      Index at = 0;  // of what p sends to this rank, in p's buffer
      for (int q = 0; q < s.rank; ++q) at += uneven(s.count, p, q);
      wrong +=
          count_moved(recv + s.recv_offsets[p] * size, s.recv_counts[p] * size, p, at * size, size);
    } else {
      wrong += count_moved(recv + p * run, run, p, s.op == "all_to_all" ? s.rank * run : 0, size);
    }
  }
  return wrong;
}

}  // namespace ccl::perf
