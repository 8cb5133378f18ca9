#pragma once

#include <ccl/topo/search.hpp>

#include <cstdint>
#include <deque>
#include <tuple>
#include <vector>

namespace ccl::topo::detail {

/// Of the `count` NICs that are nearest to a GPU, where its channels begin; modulo `count`.
unsigned first_net(const Graph& graph, int gpu, unsigned count);

/// A node that a channel's edge starts or ends at: a GPU or NET by index, or the NVSwitch.
enum class End { gpu, net, nvs };
struct SearchPlace {
  End end;
  int index;
};

/// A path as the search uses it.
struct Route {
  const Path* path = nullptr;
  bool through_intel_host = false;  // Intel's root complex loses a sixth on P2P
};

/// Order in which to try: a list, the order of the file, or the channel before.
enum class Order { free, file, replay };

/// One search. `run` (search.cpp) chooses what to try; a try walks through the GPUs, channel after
/// channel (search_walk.cpp), and takes the bandwidth of the links that it follows
/// (search_routes.cpp).
class Searcher {
 public:
  Searcher(const Graph& graph, const Paths& paths, const SearchOptions& options);

  ChannelGraph run();

 private:
  int gpu_count() const { return static_cast<int>(gpus_.size()); }
  int rank(int gpu) const { return graph_.nodes[gpus_[gpu]].gpu.rank; }
  int dev(int net) const { return graph_.nodes[nets_[net]].net.dev; }
  int gpu_of(int rank_wanted) const {
    for (int g = 0; g < gpu_count(); ++g) {
      if (rank(g) == rank_wanted) return g;
    }
    return 0;
  }

  void prepare_routes();
  void prepare_nets();
  Route route(int from, int to) const;
  const Route& route(SearchPlace from, SearchPlace to) const;
  const std::vector<int>& nets_for(int gpu) const {
    return net_lists_[static_cast<std::size_t>(now_.type_inter)][static_cast<std::size_t>(gpu + 1)];
  }

  bool take(const Route& route, const Node& start, std::size_t links, float bw, std::size_t& done);
  bool follow(SearchPlace from, SearchPlace to, float share);
  void unfollow(SearchPlace from, SearchPlace to, float share);

  void channels();
  void channels_inside();
  void channels_between();
  void try_gpu(SearchPlace from, int gpu, int step, int leave_at, int close_at, Order order,
               std::int64_t& time);
  void visit(int gpu, int step, int leave_at, int close_at, Order order, std::int64_t& time);
  void leave(int gpu, int step, int leave_at, int close_at, Order order, std::int64_t& time);
  void try_nvls(int gpu, std::int64_t& time);
  void try_direct(int gpu, std::int64_t& time);
  void complete(std::int64_t& time);
  // Smaller is better; the last is the GPU.
  using Score = std::tuple<float, float, int, float, int, int, int>;
  const std::vector<Score>& scores(int gpu, int net);
  void sort_next(int gpu, int near_net, std::vector<int>& order);
  bool improves() const;
  bool split_in_two() const;
  int replay(int step) const;
  void set_slot(int step, int rank_there);

  /// Upper bound of channels * speed at `speed`, by what NICs can carry.
  float wires_bound(float speed) const;

  const Graph& graph_;
  const Paths& paths_;
  const SearchOptions& options_;
  std::vector<int> gpus_, nets_;
  std::vector<float> left_;      // GB/s left of every link
  std::vector<int> reverse_;     // link the other way
  std::vector<float> net_left_;  // GB/s left of every NET's wire
  std::vector<int> wire_;        // NETs of one wire share a number
  int nvs_ = -1;
  bool between_ = false;
  std::vector<Route> gpu_gpu_, gpu_net_, net_gpu_, gpu_nvs_, nvs_gpu_;
  // [worst type][gpu + 1]: NETs to try, best first; [..][0]: for any GPU.
  std::vector<std::vector<std::vector<int>>> net_lists_;
  std::vector<std::vector<int>> near_gpus_;  // of a NET
  std::vector<int> own_gpu_;                 // of a NET, or -1
  std::vector<std::vector<char>> used_;      // [channel][gpu]
  std::vector<float> pci_bw_;
  std::deque<std::vector<int>> scratch_;    // [depth]; a deque, so that lists stay in place
  std::vector<std::vector<Score>> scores_;  // [gpu][net + 1]

  ChannelGraph now_, best_;
  int filled_ = 0;  // complete channels of now_
  int min_channels_ = 1, max_channels_ = 1;
  std::int64_t time_ = 0;  // steps left; -1: nothing better is possible
};

}  // namespace ccl::topo::detail
