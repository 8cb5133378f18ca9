#include "cases.hpp"

#include <algorithm>
#include <utility>

namespace ccl::perf {

std::vector<Index> sizes(const Options& options, DataType type, int ranks) {
  std::vector<Index> all;
  Index last = 0;
  for (double size = double(options.begin); size <= double(options.end);
       size = std::max(size * options.factor, size + 1)) {
    const Index count = Shape::of(options.op, Index(size), size_of(type), ranks, 0, 0).count;
    if (count != std::exchange(last, count)) all.push_back(Index(size));
  }
  return all;
}

Index largest_buffer(const Options& options, int ranks) {
  Index most = 0;
  for (const auto type : options.types) {
    for (const Index bytes : sizes(options, type, ranks)) {
      for (int rank = 0; rank < ranks; ++rank) {
        const Shape s = Shape::of(options.op, bytes, size_of(type), ranks, rank, options.root);
        most = std::max(most, std::max(s.send_count, s.recv_count) * size_of(type));
      }
    }
  }
  return most;
}

Call make_call(const Shape& shape, DataType type, RedOp redop) {
  Call call;
  call.type = type;
  call.redop = redop;
  call.count = shape.count;
  call.root = shape.root;
  call.next = (shape.rank + 1) % shape.ranks;
  call.prev = (shape.rank + shape.ranks - 1) % shape.ranks;
  call.send_counts = shape.send_counts;
  call.send_offsets = shape.send_offsets;
  call.recv_counts = shape.recv_counts;
  call.recv_offsets = shape.recv_offsets;
  return call;
}

}  // namespace ccl::perf
