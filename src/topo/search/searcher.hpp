#pragma once

#include <ccl/topo/search.hpp>

#include <cstdint>
#include <deque>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace ccl::topo::detail {

/// Index of the NIC, among the `count` nearest to a GPU, at which its channels begin; modulo
/// `count`.
unsigned first_net(const Graph& graph, int gpu, unsigned count);

/// A node that a channel's edge starts or ends at: a GPU or NET by index, or the NVSwitch.
enum class End { gpu, net, nvs };
struct SearchPlace {
  End end;
  int index;
};

/// A path in the form that the search uses.
struct Route {
  Path path;
  bool through_intel_host = false;  // Intel's root complex loses a sixth on P2P
};

/// Order of trial: a list, the order of the file, or the previous channel.
enum class Order { free, file, replay };

/// One search. `run` (search.cpp) chooses the settings to try. A try walks through the GPUs,
/// channel by channel (walk.cpp), and takes the bandwidth of the links on its way (routes.cpp).
class Searcher {
 public:
  Searcher(const Graph& graph, const Paths& paths, const SearchOptions& options);

  ChannelGraph run();

 private:
  int gpu_count() const { return static_cast<int>(gpus_.size()); }
  int rank(int gpu) const { return graph_.nodes[gpus_[gpu]].gpu.rank; }
  int dev(int net) const { return graph_.nodes[nets_[net]].net.dev; }
  int gpu_of(int rank_wanted) const {
    const auto found = gpu_of_rank_.find(rank_wanted);
    return found == gpu_of_rank_.end() ? 0 : found->second;
  }
  /// NIC with this number, or `none`.
  int net_of(int dev_wanted, int none) const {
    const auto found = net_of_dev_.find(dev_wanted);
    return found == net_of_dev_.end() ? none : found->second;
  }

  /// Bounds of the settings that a search tries, and its current speed.
  struct Scan {
    int sm = 0;
    PathType min_intra = PathType::loc, max_intra = PathType::loc;
    PathType min_inter = PathType::pix, max_inter = PathType::pix;
    int cross_nic = 0;
    Limits bounds;
    std::vector<float> speeds;  // GB/s, from high to low
    std::size_t speed = 0;      // index into `speeds`
    std::int64_t budget = 0;    // steps left until the first answer
  };

  bool is_ring() const { return options_.pattern == Pattern::ring; }
  bool is_nvls() const { return options_.pattern == Pattern::nvls; }
  Scan make_scan() const;
  void set_channel_bounds();
  /// Skips the speeds that no link carries.
  void set_first_speed(Scan& scan);
  /// Tries the settings of `now_`. Returns true if nothing better is possible.
  bool attempt(Scan& scan);
  /// Sets `now_` to the next settings to try. Returns false after the last ones.
  bool advance(Scan& scan);
  /// Sets the next paths to NICs: those that avoid CPUs, with one NIC for each channel, then with
  /// two, then the other paths in the same way. Returns false after the last ones.
  bool advance_to_nics(const Scan& scan);
  /// Splits wide channels in two, so that more of a GPU's lanes share the work.
  void split_wide_channels(const Scan& scan);
  /// Searches for the same number of channels at higher speeds.
  void raise_speed(Scan& scan);
  /// Sets `best_` to one channel in the order of ranks.
  void use_rank_order();

  void prepare_routes();
  void prepare_nets();
  /// True if a path leads from a GPU through an Intel CPU.
  bool through_intel_host(int from, int to) const;
  Route route(SearchPlace from, SearchPlace to) const;
  Path path(SearchPlace from, SearchPlace to) const { return paths_.at(node(from), node(to)); }
  int node(SearchPlace place) const {
    return place.end == End::gpu   ? gpus_[place.index]
           : place.end == End::net ? nets_[place.index]
                                   : nvs_;
  }
  Path between_gpus(int from, int to) const { return paths_.at(gpus_[from], gpus_[to]); }
  Path to_net(int gpu, int net) const { return paths_.at(gpus_[gpu], nets_[net]); }
  Path from_net(int net, int gpu) const { return paths_.at(nets_[net], gpus_[gpu]); }
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
  /// True if no link of a GPU carries the speed any more, so that no other GPU can be next. With
  /// thousands of GPUs, a try of each would take most of the time.
  bool is_spent(int gpu) const;
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

  /// Upper bound of channels * speed at `speed`, by the bandwidth of NICs.
  float wires_bound(float speed) const;

  const Graph& graph_;
  const Paths& paths_;
  const SearchOptions& options_;
  std::vector<int> gpus_, nets_;
  std::unordered_map<int, int> gpu_of_rank_, net_of_dev_;
  std::vector<std::vector<int>> on_wire_;  // NETs of a wire, by its number
  std::vector<float> left_;                // GB/s left of every link
  std::vector<int> reverse_;               // link the other way
  std::vector<float> net_left_;            // GB/s left of every NET's wire
  std::vector<int> wire_;                  // NETs of one wire share a number
  int nvs_ = -1;
  bool between_ = false;
  // 1: through an Intel CPU; [from][to]. A path from a NET or NVSwitch is not marked.
  std::vector<char> gpu_gpu_intel_, gpu_net_intel_, nvs_intel_;
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
