#pragma once

namespace ccl {

/// Up to N peers, by rank; -1 for none, and none before a rank.
template <int N>
struct Peers {
  int rank[N];
};

}  // namespace ccl
