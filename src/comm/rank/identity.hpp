#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/topo/arrange.hpp>
#include <ccl/types/peer_info.hpp>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/forks.hpp"
#include "topo/search/host_nic.hpp"

namespace ccl::detail {

/// Rank, size, configuration and peers of a communicator. Only its creation calls the setters.
class Identity {
 public:
  Identity(int rank, int ranks, Config config)
      : rank_{rank}, ranks_{ranks}, config_{std::move(config)} {}

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// Number that all ranks of this communicator have, and other communicators have not.
  Word id() const { return id_; }
  void set_id(Word id) { id_ = id; }
  const Config& config() const { return config_; }
  /// One element for each rank.
  const std::vector<PeerInfo>& peers() const { return peers_; }
  /// Number of hosts on which the communicator has ranks.
  int hosts() const {
    std::set<Word> all;
    for (const PeerInfo& peer : peers_) all.insert(peer.host_hash);
    return int(all.size());
  }
  /// Order of all ranks in rings and trees.
  const topo::Arrangement& arrangement() const { return arrangement_; }
  /// True if this process created the communicator. False in a child that was forked later.
  bool is_own() const { return forks_before() == process_; }

  void set_rank(int rank, int ranks) { rank_ = rank, ranks_ = ranks; }
  void set_device(int device) { config_.device = device; }
  void set_memory_budget(Index bytes) { config_.memory_budget_bytes = bytes; }
  /// Makes room for all ranks and sets the entry of this rank.
  void set_self(const PeerInfo& self) {
    peers_.resize(std::size_t(ranks_));
    peers_[std::size_t(rank_)] = self;
  }
  /// Entries of all ranks, which an all-gather fills. `forget_ways` must follow.
  PeerInfo* gathered_peers() { return peers_.data(); }
  /// Drops the ways that other ranks sent: this rank computes its own.
  void forget_ways() {
    for (PeerInfo& peer : peers_) peer.way = {};
  }
  /// NICs of this rank's machine; empty if the topology was not looked at.
  const std::vector<topo::HostNic>& nics() const { return nics_; }
  void set_nics(std::vector<topo::HostNic> nics) { nics_ = std::move(nics); }
  PeerInfo::LinkPreference& way_to(int peer) { return peers_[std::size_t(peer)].way; }
  void set_arrangement(topo::Arrangement arrangement) { arrangement_ = std::move(arrangement); }
  /// Heads of this rank's host, which own the slices of an all-reduce over multicast memory: those
  /// of the whole communicator in a level of it, else those of the topology, else all its ranks.
  std::vector<int> heads() const;
  void set_heads(std::vector<int> heads) { arrangement_.set_heads(rank_, std::move(heads)); }

 private:
  int rank_, ranks_;
  Word id_ = 0;
  Config config_;
  const int process_ = forks_before();
  std::vector<PeerInfo> peers_;
  topo::Arrangement arrangement_;
  std::vector<topo::HostNic> nics_;
};

/// Returns "communicator NAME of 4 ranks", for messages and tools.
std::string say(const Identity& identity);

}  // namespace ccl::detail
