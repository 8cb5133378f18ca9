#include <ccl/collective/seats.hpp>

#include <set>

namespace ccl::detail {

Result<void> connect_seats(Links& links, const SeatsOf& of, int root, const Result<void>& so_far) {
  links.seats_for(root, of.double_tree);
  if (links.connected(root)) return {};
  PeersOfSeats seats{links, root};
  for (int c = 0; c < links.plan().channels; ++c) {
    seats.channel = c;
    of.peers(seats);
  }
  if (of.by_root) {
    // Another root may want other channels between the same ranks.
    for (auto* peers : {&seats.in, &seats.out}) {
      std::set<int> ranks;
      for (const auto& peer : *peers) ranks.insert(peer.rank);
      peers->clear();
      for (const int rank : ranks) {
        for (int c = 0; c < links.plan().channels; ++c) peers->push_back({rank, c});
      }
    }
  }
  CCL_CHECK(links.connect(seats.in, seats.out, so_far));
  links.set_connected(root);
  return {};
}

}  // namespace ccl::detail
