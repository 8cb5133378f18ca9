#include "gpu.hpp"

namespace ccl::perf::gpu {

Result<void> fill_send(Queue& queue, const Shape& s, DataType type, RedOp redop, std::byte* send) {
  if (s.reduces()) return queue.fill_values(type, redop, s.ranks, s.rank, s.send_count, send);
  return queue.fill_moved(s.rank, s.send_count * size_of(type), send);
}

Result<Index> count_wrong(Queue& queue, const Shape& s, DataType type, RedOp redop,
                          const std::byte* recv) {
  if (!s.receives()) return 0;
  if (s.reduces()) {
    return queue.count_values(type, redop, s.ranks, s.reduced_from(), s.count, recv);
  }
  Index wrong = 0;
  for (const Piece& piece : s.pieces(size_of(type))) {
    CCL_TRY(const Index more, queue.count_moved(piece, size_of(type), recv));
    wrong += more;
  }
  return wrong;
}

}  // namespace ccl::perf::gpu
