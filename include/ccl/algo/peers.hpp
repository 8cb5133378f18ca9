#pragma once

namespace ccl {

/// Up to N peers, by rank. Entries without a peer are -1 and come last.
template <int N>
struct Peers {
  int rank[N];
};

}  // namespace ccl
