#pragma once

// Channels that NCCL's own code finds for machines that rooms have, too.
#include <string>
#include <vector>

#include "support/room/shapes.hpp"

namespace ccl::test::room {

/// A channel between hosts: GPUs from the first to the last, and the NIC for both directions.
struct NcclChannel {
  std::vector<int> gpus;
  int nic;
};

/// Answers of NCCL 2.30.7 (src/graph, run on a CPU) for 2 and for 4 hosts of a shape.
struct NcclAnswer {
  Shape shape;
  float bw_inter;  // GB/s of a channel
  std::vector<NcclChannel> rings, trees;
  bool same_orders;  // ccl finds the same orders of GPUs
};

inline std::vector<NcclAnswer> nccl_answers() {
  return {{ndv4(),
           24,
           {{{2, 5, 4, 7, 6, 1, 0, 3}, 2},
            {{3, 0, 1, 6, 7, 4, 5, 2}, 3},
            {{0, 3, 2, 5, 4, 7, 6, 1}, 0},
            {{1, 6, 7, 4, 5, 2, 3, 0}, 1},
            {{6, 1, 0, 3, 2, 5, 4, 7}, 6},
            {{7, 4, 5, 2, 3, 0, 1, 6}, 7},
            {{4, 7, 6, 1, 0, 3, 2, 5}, 4},
            {{5, 2, 3, 0, 1, 6, 7, 4}, 5}},
           {{{2, 3, 0, 1, 6, 7, 4, 5}, 2},
            {{3, 2, 5, 4, 7, 6, 1, 0}, 3},
            {{0, 1, 6, 7, 4, 5, 2, 3}, 0},
            {{1, 0, 3, 2, 5, 4, 7, 6}, 1},
            {{6, 7, 4, 5, 2, 3, 0, 1}, 6},
            {{7, 6, 1, 0, 3, 2, 5, 4}, 7},
            {{4, 5, 2, 3, 0, 1, 6, 7}, 4},
            {{5, 4, 7, 6, 1, 0, 3, 2}, 5}},
           true},
          // ccl's odd channels go the other way round, at the same speed.
          {p4d(),
           12,
           {{{0, 7, 6, 5, 4, 3, 2, 1}, 0},
            {{2, 1, 0, 7, 6, 5, 4, 3}, 1},
            {{4, 3, 2, 1, 0, 7, 6, 5}, 2},
            {{6, 5, 4, 3, 2, 1, 0, 7}, 3}},
           {{{0, 1, 2, 3, 4, 5, 6, 7}, 0},
            {{2, 3, 4, 5, 6, 7, 0, 1}, 1},
            {{4, 5, 6, 7, 0, 1, 2, 3}, 2},
            {{6, 7, 0, 1, 2, 3, 4, 5}, 3}},
           false}};
}

}  // namespace ccl::test::room
