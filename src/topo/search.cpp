#include <ccl/topo/search.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <tuple>

namespace ccl::topo {
namespace {

constexpr std::array speeds_inside{40.0F, 30.0F, 20.0F, 18.0F, 15.0F, 12.0F, 10.0F,
                                   9.0F,  7.0F,  6.0F,  5.0F,  4.0F,  3.0F};
constexpr std::array speeds_between{48.0F, 30.0F, 28.0F, 24.0F, 20.0F, 18.0F, 15.0F,
                                    12.0F, 10.0F, 9.0F,  7.0F,  6.0F,  5.0F,  4.0F,
                                    3.0F,  2.4F,  1.2F,  0.24F, 0.12F};
constexpr std::array speeds_inside_sm90{60.0F, 50.0F, 40.0F, 30.0F, 24.0F, 20.0F,
                                        15.0F, 12.0F, 11.0F, 6.0F,  3.0F};
constexpr std::array speeds_between_sm90{48.0F, 45.0F, 42.0F, 40.0F, 30.0F, 24.0F,
                                         22.0F, 20.0F, 17.5F, 15.0F, 12.0F, 6.0F,
                                         3.0F,  2.4F,  1.2F,  0.24F, 0.12F};
constexpr std::array speeds_inside_sm100{90.0F, 80.0F, 70.0F, 60.0F, 50.0F, 45.0F,
                                         40.0F, 30.0F, 24.0F, 20.0F, 19.0F, 18.0F};
constexpr std::array speeds_between_sm100{96.0F, 86.0F, 80.0F, 48.0F, 45.1F, 42.0F, 40.0F,
                                          30.0F, 24.0F, 22.0F, 20.0F, 17.5F, 15.0F, 12.0F,
                                          6.0F,  3.0F,  2.4F,  1.2F,  0.24F, 0.12F};

/// The lists for newer GPUs end where NVLink does; slower machines go on down the common list.
std::vector<float> speeds(int sm, bool between) {
  std::span<const float> head = between ? std::span<const float>(speeds_between) : speeds_inside;
  if (sm >= 90) head = between ? std::span<const float>(speeds_between_sm90) : speeds_inside_sm90;
  if (sm >= 100) {
    head = between ? std::span<const float>(speeds_between_sm100) : speeds_inside_sm100;
  }
  std::vector<float> list(head.begin(), head.end());
  const float least = list.back();
  for (const float speed : speeds_between) {
    if (speed < least) list.push_back(speed);
  }
  return list;
}

PathType next(PathType type) {
  return static_cast<PathType>(static_cast<int>(type) + 1);
}

/// A node that a channel's edge starts or ends at: a GPU or NET by index, or the NVSwitch.
enum class End { gpu, net, nvs };
struct Place {
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

class Searcher {
 public:
  Searcher(const Graph& graph, const Paths& paths, const SearchOptions& options)
      : graph_(graph),
        paths_(paths),
        options_(options),
        nets_(options.between ? graph.of(NodeType::net) : std::vector<int>()),
        left_(graph.links.size()),
        reverse_(graph.links.size(), -1) {
    for (const int gpu : graph.of(NodeType::gpu)) {
      if (graph.nodes[gpu].gpu.rank >= 0) gpus_.push_back(gpu);
    }
    for (std::size_t l = 0; l < graph.links.size(); ++l) left_[l] = graph.links[l].bw;
    for (std::size_t l = 0; l < graph.links.size(); ++l) {
      const Link& link = graph.links[l];
      for (const int back : graph.nodes[link.to].out) {
        if (graph.links[back].to == link.from && graph.links[back].type == link.type) {
          reverse_[l] = back;
        }
      }
    }
    const std::vector<int> switches = graph.of(NodeType::nvs);
    nvs_ = switches.empty() ? -1 : switches.front();
    std::map<std::pair<std::uint64_t, int>, int> wires;
    for (std::size_t n = 0; n < nets_.size(); ++n) {
      const Node::Net& net = graph.nodes[nets_[n]].net;
      net_left_.push_back(net.bw);
      const int fresh = static_cast<int>(n);
      wire_.push_back(net.guid == 0
                          ? fresh
                          : wires.emplace(std::pair(net.guid, net.port), fresh).first->second);
    }
    between_ = !nets_.empty();
    scores_.resize(gpus_.size() * (nets_.size() + 1));
    prepare_routes();
    prepare_nets();
  }

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
  const Route& route(Place from, Place to) const;
  const std::vector<int>& nets_for(int gpu) const {
    return net_lists_[static_cast<std::size_t>(now_.type_inter)][static_cast<std::size_t>(gpu + 1)];
  }

  bool take(const Route& route, const Node& start, std::size_t links, float bw, std::size_t& done);
  bool follow(Place from, Place to, float share);
  void unfollow(Place from, Place to, float share);

  void channels();
  void channels_inside();
  void channels_between();
  void try_gpu(Place from, int gpu, int step, int leave_at, int close_at, Order order,
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

Route Searcher::route(int from, int to) const {
  Route found;
  found.path = &paths_.at(from, to);
  if (found.path->type == PathType::phb && graph_.nodes[from].type == NodeType::gpu) {
    for (const int l : found.path->links) {
      const Node& node = graph_.nodes[graph_.links[l].to];
      if (node.type == NodeType::cpu && node.cpu.arch == CpuArch::x86 &&
          node.cpu.vendor == CpuVendor::intel) {
        found.through_intel_host = true;
      }
    }
  }
  return found;
}

void Searcher::prepare_routes() {
  for (const int a : gpus_) {
    for (const int b : gpus_) gpu_gpu_.push_back(route(a, b));
  }
  for (const int g : gpus_) {
    for (const int n : nets_) gpu_net_.push_back(route(g, n));
  }
  for (const int n : nets_) {
    for (const int g : gpus_) net_gpu_.push_back(route(n, g));
  }
  for (const int g : gpus_) {
    gpu_nvs_.push_back(nvs_ < 0 ? Route{} : route(g, nvs_));
    nvs_gpu_.push_back(nvs_ < 0 ? Route{} : route(nvs_, g));
    float pci = 0;
    for (const int l : graph_.nodes[g].out) {
      if (graph_.links[l].type == LinkType::pci) pci = std::max(pci, graph_.links[l].bw);
    }
    pci_bw_.push_back(pci);
  }
}

const Route& Searcher::route(Place from, Place to) const {
  if (from.end == End::gpu && to.end == End::gpu)
    return gpu_gpu_[from.index * gpus_.size() + to.index];
  if (from.end == End::gpu && to.end == End::net)
    return gpu_net_[from.index * nets_.size() + to.index];
  if (from.end == End::net) return net_gpu_[from.index * gpus_.size() + to.index];
  return from.end == End::nvs ? nvs_gpu_[to.index] : gpu_nvs_[from.index];
}

void Searcher::prepare_nets() {
  const auto best = [&](int count, const auto& path_of) {
    std::vector<int> found;
    const Path* first = nullptr;
    for (int i = 0; i < count; ++i) {
      const Path& path = *path_of(i);
      if (!path.reaches() || path.bw <= 0) continue;
      if (first == nullptr || path.bw > first->bw ||
          (path.bw == first->bw && path.type < first->type)) {
        first = &path;
        found.clear();
      }
      if (path.bw == first->bw && path.type == first->type) found.push_back(i);
    }
    return found;
  };
  const int net_count = static_cast<int>(nets_.size());
  for (int n = 0; n < net_count; ++n) {
    near_gpus_.push_back(
        best(gpu_count(), [&](int g) { return net_gpu_[n * gpus_.size() + g].path; }));
  }
  std::vector<std::vector<int>> own(gpus_.size());
  for (int g = 0; g < gpu_count(); ++g) {
    const std::vector<int> locals =
        best(net_count, [&](int n) { return gpu_net_[g * nets_.size() + n].path; });
    if (locals.empty()) continue;
    const unsigned count = static_cast<unsigned>(locals.size());
    const unsigned sharers = std::max(1U, static_cast<unsigned>(near_gpus_[locals.front()].size()));
    unsigned place = static_cast<unsigned>(std::max(0, graph_.nodes[gpus_[g]].gpu.dev));
    if ((count & (count - 1)) == 0) {
      unsigned mirrored = 0;
      for (unsigned bit = 1, top = count >> 1; top > 0; bit <<= 1, top >>= 1) {
        if ((place & bit) != 0) mirrored |= top;
      }
      place = mirrored;
    }
    const unsigned each = (count + sharers - 1) / sharers;
    for (unsigned c = 0; c < each; ++c) own[g].push_back(locals[(place + c) % count]);
  }
  own_gpu_.assign(nets_.size(), -1);
  for (int n = 0; n < net_count; ++n) {
    for (const int g : near_gpus_[n]) {
      if (own_gpu_[n] < 0 && std::find(own[g].begin(), own[g].end(), n) != own[g].end()) {
        own_gpu_[n] = g;
      }
    }
  }
  const auto add = [](std::vector<int>& list, int n) {
    if (std::find(list.begin(), list.end(), n) == list.end()) list.push_back(n);
  };
  for (int type = 0; type <= static_cast<int>(PathType::dis); ++type) {
    auto& lists = net_lists_.emplace_back(gpus_.size() + 1);
    for (int wanted = -1; wanted < gpu_count(); ++wanted) {
      std::vector<int>& list = lists[wanted + 1];
      for (int g = 0; g < gpu_count(); ++g) {
        if (wanted >= 0 && wanted != g) continue;
        for (const int n : own[g]) add(list, n);
      }
      for (int t = 0; t <= type && t < static_cast<int>(PathType::dis); ++t) {
        for (int g = 0; g < gpu_count(); ++g) {
          if (wanted >= 0 && wanted != g) continue;
          for (int n = 0; n < net_count; ++n) {
            if (static_cast<int>(gpu_net_[g * nets_.size() + n].path->type) == t) add(list, n);
          }
        }
      }
    }
  }
}

bool Searcher::take(const Route& route, const Node& start, std::size_t links, float bw,
                    std::size_t& done) {
  const float pci_bw = route.through_intel_host ? bw * 6 / 5 : bw;
  const auto subtract = [](float& from, float amount) {
    from = std::round((from - amount) * 1000) / 1000;
  };
  for (done = 0; done < links; ++done) {
    const int l = route.path->links[done];
    const Link& link = graph_.links[l];
    const float forth = link.type == LinkType::pci ? pci_bw : bw;
    float back = 0;
    const Node& to = graph_.nodes[link.to];
    // Before sm_80 a NIC's writes cost an eighth on the way back.
    if (to.type == NodeType::gpu && to.gpu.sm < 80 && !to.gpu.on_cpu &&
        start.type != NodeType::gpu) {
      back += forth / 8;
    }
    // POWER's NVLink to the CPU is half duplex.
    if (to.type == NodeType::cpu && to.cpu.arch == CpuArch::power && link.type == LinkType::nvl) {
      back += forth;
    }
    const int r = back != 0 ? reverse_[l] : -1;
    if (left_[l] < forth || (r >= 0 && left_[r] < back)) return false;
    subtract(left_[l], forth);
    if (r >= 0) subtract(left_[r], back);
  }
  return true;
}

bool Searcher::follow(Place from, Place to, float share) {
  const bool inside = from.end != End::net && to.end != End::net;
  const Route& found = route(from, to);
  const Path& path = *found.path;
  if (!path.reaches() || path.type >= PathType::net) return false;
  const PathType worst = inside ? now_.type_intra : now_.type_inter;
  if (path.type > worst) return false;
  const bool chain = now_.pattern == Pattern::balanced_tree || now_.pattern == Pattern::tree ||
                     now_.pattern == Pattern::split_tree;
  // Trees carry data both ways.
  if (chain && from.end != End::nvs && to.end != End::nvs && route(to, from).path->type > worst) {
    return false;
  }
  const float bw = (inside ? now_.bw_intra : now_.bw_inter) * share;
  const Node& start = graph_.nodes[from.end == End::gpu   ? gpus_[from.index]
                                   : from.end == End::net ? nets_[from.index]
                                                          : nvs_];
  std::size_t done = 0;
  if (take(found, start, path.links.size(), bw, done)) {
    now_.hops += share * static_cast<float>(path.hops());
    return true;
  }
  std::size_t undone = 0;
  take(found, start, done, -bw, undone);
  return false;
}

void Searcher::unfollow(Place from, Place to, float share) {
  const bool inside = from.end != End::net && to.end != End::net;
  const Route& found = route(from, to);
  const float bw = (inside ? now_.bw_intra : now_.bw_inter) * share;
  const Node& start = graph_.nodes[from.end == End::gpu   ? gpus_[from.index]
                                   : from.end == End::net ? nets_[from.index]
                                                          : nvs_];
  std::size_t undone = 0;
  take(found, start, found.path->links.size(), -bw, undone);
  now_.hops -= share * static_cast<float>(found.path->hops());
}

bool Searcher::improves() const {
  const int found = filled_;
  if (found < min_channels_) return false;
  const float mine = static_cast<float>(found) * now_.bw_intra;
  const float theirs = static_cast<float>(best_.count()) * best_.bw_intra;
  if (now_.pattern == Pattern::nvls) {
    // A channel is a GPU that pulls from the switch: the more, the better.
    if (found > best_.count() && found <= gpu_count()) return true;
    return static_cast<float>(found) * now_.bw_inter >
           static_cast<float>(best_.count()) * best_.bw_inter;
  }
  // Rails are worth 15 %: crossing NICs must gain more than that.
  const float target = 1.0F - static_cast<float>(best_.cross_nic - now_.cross_nic) * 0.15F;
  if (mine > theirs * target) return true;
  if (mine < theirs * target) return false;
  return now_.pattern == best_.pattern && now_.cross_nic == best_.cross_nic &&
         now_.hops < best_.hops;
}

void Searcher::complete(std::int64_t& time) {
  ++filled_;
  if (improves()) {
    best_ = now_;
    best_.channels.resize(filled_);
    if (filled_ == max_channels_) time = -1;
  }
  if (filled_ < max_channels_) {
    // The next channel spends from the same purse.
    if (&time == &time_) {
      channels();
    } else {
      const std::int64_t outer = time_;
      time_ = time;
      channels();
      time = time_;
      time_ = outer;
    }
  }
  --filled_;
}

void Searcher::set_slot(int step, int rank_there) {
  if (static_cast<int>(now_.channels.size()) <= filled_) now_.channels.resize(filled_ + 1);
  ChannelOrder& order = now_.channels[filled_];
  order.ranks.resize(gpus_.size(), -1);
  order.ranks[step] = rank_there;
}

int Searcher::replay(int step) const {
  return gpu_of(now_.channels[filled_ - 1].ranks[step]);
}

void Searcher::try_gpu(Place from, int gpu, int step, int leave_at, int close_at, Order order,
                       std::int64_t& time) {
  const bool start = from.index < 0;
  const Place to{End::gpu, gpu};
  if (!start && !follow(from, to, 1)) return;
  if (static_cast<int>(used_.size()) <= filled_) {
    used_.resize(filled_ + 1, std::vector<char>(gpus_.size(), 0));
  }
  used_[filled_][gpu] ^= 1;
  visit(gpu, step, leave_at, close_at, order, time);
  used_[filled_][gpu] ^= 1;
  if (!start) unfollow(from, to, 1);
}

void Searcher::visit(int gpu, int step, int leave_at, int close_at, Order order,
                     std::int64_t& time) {
  if (time <= 0) return;
  --time;
  const int count = gpu_count();
  if (step == count) {
    complete(time);
    return;
  }
  set_slot(step, rank(gpu));
  if (step == leave_at) {
    leave(gpu, step, leave_at, close_at, order, time);
  } else if (now_.pattern == Pattern::nvls) {
    try_nvls(gpu, time);
  } else if (now_.pattern == Pattern::collnet_direct) {
    try_direct(gpu, time);
  } else if (step < count - 1) {
    // One list per depth, kept: this is the innermost loop.
    const std::size_t depth =
        static_cast<std::size_t>(filled_) * gpus_.size() + static_cast<std::size_t>(step);
    while (scratch_.size() <= depth) scratch_.emplace_back();
    std::vector<int>& candidates = scratch_[depth];
    candidates.clear();
    if (order == Order::file) {
      // The order of the file, from the first GPU of the channel on.
      if (used_[filled_][step + 1] != 0) return;
      candidates.push_back(step + 1);
    } else if (order == Order::replay) {
      candidates.push_back(replay(step + 1));
      if (used_[filled_][candidates[0]] != 0) return;
    } else {
      sort_next(gpu, leave_at == -1 ? 0 : leave_at == step + 1 ? 1 : -1, candidates);
    }
    for (const int candidate : candidates) {
      try_gpu({End::gpu, gpu}, candidate, step + 1, leave_at, close_at, order, time);
      if (time <= 0) return;
    }
  } else if (step == close_at) {
    const int first = gpu_of(now_.channels[filled_].ranks[0]);
    if (first == gpu || follow({End::gpu, gpu}, {End::gpu, first}, 1)) {
      visit(first, step + 1, leave_at, -1, order, time);
      if (first != gpu) unfollow({End::gpu, gpu}, {End::gpu, first}, 1);
    }
  } else {
    visit(gpu, count, -1, -1, order, time);
  }
}

void Searcher::leave(int gpu, int step, int leave_at, int close_at, Order order,
                     std::int64_t& time) {
  static_cast<void>(leave_at);
  const int in = now_.channels[filled_].net_in;
  int start = 0;
  for (int n = 0; n < static_cast<int>(nets_.size()); ++n) {
    if (dev(n) == in) start = n;
  }
  for (const int n : nets_for(gpu)) {
    if (now_.pattern == Pattern::tree && n != start) continue;  // in and out are one
    if (now_.pattern == Pattern::ring && now_.cross_nic == 2) {
      if ((filled_ & 1) != 0 && dev(n) != now_.channels[filled_ - 1].net_in) continue;
    } else if (now_.cross_nic == 0 && wire_[n] != wire_[start]) {
      continue;
    }
    int next_leave = -1;
    float share = 1;
    if (now_.pattern == Pattern::balanced_tree) {
      // Half of the traffic on each of the first two GPUs.
      if (step == 0) {
        next_leave = 1;
      } else if (dev(n) != now_.channels[filled_].net_out) {
        continue;
      }
      share = 0.5F;
    }
    // Hops count whole for half the traffic.
    const float hops = now_.hops;
    if (!follow({End::gpu, gpu}, {End::net, n}, share)) continue;
    now_.hops =
        hops + static_cast<float>(route(Place{End::gpu, gpu}, Place{End::net, n}).path->hops());
    const int kept = now_.channels[filled_].net_out;
    now_.channels[filled_].net_out = dev(n);
    visit(gpu, step, next_leave, close_at, order, time);
    now_.channels[filled_].net_out = kept;
    unfollow({End::gpu, gpu}, {End::net, n}, share);
    now_.hops = hops;
    if (time <= 0) return;
  }
}

void Searcher::try_nvls(int gpu, std::int64_t& time) {
  if (nvs_ < 0) return;
  const auto share = [gpu](int g) { return g == gpu ? 2.0F : 1.0F; };
  int down = 0, up = 0;
  while (down < gpu_count() && follow({End::nvs, 0}, {End::gpu, down}, share(down))) ++down;
  if (down == gpu_count()) {
    while (up < gpu_count() && follow({End::gpu, up}, {End::nvs, 0}, share(up))) ++up;
    if (up == gpu_count()) {
      for (int g = 0, step = 1; g < gpu_count(); ++g) {
        if (g != gpu) set_slot(step++, rank(g));
      }
      visit(gpu, gpu_count(), -1, -1, Order::free, time);
    }
  }
  while (up > 0) --up, unfollow({End::gpu, up}, {End::nvs, 0}, share(up));
  while (down > 0) --down, unfollow({End::nvs, 0}, {End::gpu, down}, share(down));
}

void Searcher::try_direct(int gpu, std::int64_t& time) {
  const int count = gpu_count();
  const float share = count > 1 ? 1.0F / static_cast<float>(count - 1) : 1.0F;
  int out = 0, in = 0;
  const auto self = [gpu](int g) { return g == gpu; };
  while (out < count && (self(out) || follow({End::gpu, gpu}, {End::gpu, out}, share))) ++out;
  if (out == count) {
    while (in < count && (self(in) || follow({End::gpu, in}, {End::gpu, gpu}, share))) ++in;
    if (in == count) {
      for (int g = 0, step = 1; g < count; ++g) {
        if (g != gpu) set_slot(step++, rank(g));
      }
      visit(gpu, count, -1, -1, Order::free, time);
    }
  }
  while (in > 0) {
    if (!self(--in)) unfollow({End::gpu, in}, {End::gpu, gpu}, share);
  }
  while (out > 0) {
    if (!self(--out)) unfollow({End::gpu, gpu}, {End::gpu, out}, share);
  }
}

/// Scores GPUs by the width of their path to the NIC, of their PCIe link, by hops to the NIC, width
/// and hops of the path from here, and distance in number. Sorted once per GPU and NIC.
const std::vector<Searcher::Score>& Searcher::scores(int gpu, int net) {
  std::vector<Score>& list = scores_[static_cast<std::size_t>(gpu) * (nets_.size() + 1) +
                                     static_cast<std::size_t>(net + 1)];
  const int count = gpu_count();
  if (!list.empty() || count < 2) return list;
  for (int i = 1; i < count; ++i) {
    const int g = (gpu + i) % count;
    const Path& path = *gpu_gpu_[gpu * gpus_.size() + g].path;
    if (!path.reaches() || path.hops() == 0) continue;
    Score score{0, 0, 0, -path.bw, path.hops(), i, g};
    if (net >= 0) {
      const Path& to_net = *net_gpu_[net * gpus_.size() + g].path;
      std::get<0>(score) = -to_net.bw;
      std::get<1>(score) = -pci_bw_[g];
      std::get<2>(score) = to_net.hops();
    }
    list.push_back(score);
  }
  std::sort(list.begin(), list.end());
  return list;
}

void Searcher::sort_next(int gpu, int near_net, std::vector<int>& order) {
  const int count = gpu_count();
  int net = -1;
  if (near_net != 0 && between_) {
    for (int n = 0; n < static_cast<int>(nets_.size()); ++n) {
      if (dev(n) == now_.channels[filled_].net_in) net = n;
    }
  }
  bool alike = true;
  const Score* first_free = nullptr;
  for (const Score& score : scores(gpu, net)) {
    const int g = std::get<6>(score);
    if (used_[filled_][g] != 0) continue;
    if (first_free == nullptr) first_free = &score;
    alike = alike && std::get<3>(score) == std::get<3>(*first_free) &&
            std::get<4>(score) == std::get<4>(*first_free);
    order.push_back(g);
  }
  // Where all are alike, those far from the NIC go first, so that the near one is left for last.
  if (near_net == -1 && alike) std::reverse(order.begin(), order.end());
  if (nvs_ < 0) return;
  // Behind an NVSwitch all are alike: neighbours only, which also keeps the number of peers small.
  const int before = (gpu - 1 + count) % count;
  const int after = (gpu + 1) % count;
  std::vector<int> first;
  if (now_.pattern == Pattern::ring) {
    first = {after, before};
  } else if (now_.pattern == Pattern::split_tree || now_.pattern == Pattern::balanced_tree) {
    first = {before, after};
  } else {
    first = {after};
  }
  if (first.size() == 2 && before == after) first.pop_back();
  std::size_t kept = 0;
  std::array<int, 2> neighbours{-1, -1};
  for (std::size_t i = first.size(); i-- > 0;) {
    if (std::find(order.begin(), order.end(), first[i]) != order.end())
      neighbours[kept++] = first[i];
  }
  order.assign(neighbours.begin(), neighbours.begin() + kept);
}

void Searcher::channels() {
  if (between_) {
    channels_between();
  } else {
    channels_inside();
  }
}

void Searcher::channels_inside() {
  const int count = gpu_count();
  const int close_at = now_.pattern == Pattern::ring ? count - 1 : -1;
  const Place nowhere{End::gpu, -1};
  set_slot(0, -1);
  now_.channels[filled_].net_in = now_.channels[filled_].net_out = -1;
  if (now_.pattern == Pattern::nvls || now_.pattern == Pattern::collnet_direct) {
    if (filled_ < count) try_gpu(nowhere, filled_, 0, -1, close_at, Order::free, time_);
    return;
  }
  if (filled_ == 0) {
    try_gpu(nowhere, 0, 0, -1, close_at, Order::file, time_);
  } else {
    try_gpu(nowhere, replay(0), 0, -1, close_at, Order::replay, time_);
  }
  if (now_.same_channels && filled_ > 0) return;
  for (int g = 0; g < count && time_ > 0; ++g) {
    try_gpu(nowhere, g, 0, -1, close_at, Order::free, time_);
  }
}

void Searcher::channels_between() {
  const int count = gpu_count();
  const int leave_at = now_.pattern == Pattern::ring         ? count - 1
                       : now_.pattern == Pattern::split_tree ? std::min(1, count - 1)
                                                             : 0;
  const float bw = now_.bw_inter;
  const std::vector<int>& candidates = nets_for(-1);
  const bool heads = now_.pattern == Pattern::nvls || now_.pattern == Pattern::collnet_direct;
  set_slot(0, -1);
  for (std::size_t i = 0; i < candidates.size() && time_ > 0; ++i) {
    if (heads && i > 0) break;
    const int n = candidates[(static_cast<std::size_t>(filled_) + i) % candidates.size()];
    const Node::Net& net = graph_.nodes[nets_[n]].net;
    if (options_.collnet && !net.coll) continue;
    if (net_left_[n] < bw) continue;
    if (now_.pattern == Pattern::ring && now_.cross_nic == 2 && (filled_ & 1) != 0 &&
        dev(n) != now_.channels[filled_ - 1].net_out) {
      continue;
    }
    set_slot(0, -1);
    now_.channels[filled_].net_in = dev(n);
    now_.latency_inter = net.latency;
    const auto share_wire = [&](float amount) {
      for (std::size_t other = 0; other < nets_.size(); ++other) {
        if (wire_[other] == wire_[n]) net_left_[other] -= amount;
      }
    };
    share_wire(bw);
    const Place entry{End::net, n};
    if (heads) {
      if (filled_ < static_cast<int>(candidates.size()) && own_gpu_[n] >= 0) {
        const int head = rank(own_gpu_[n]);
        bool duplicate = false;
        for (int c = 0; c < filled_; ++c) duplicate |= now_.channels[c].ranks[0] == head;
        if (!duplicate) try_gpu(entry, own_gpu_[n], 0, leave_at, -1, Order::free, time_);
      }
    } else if (filled_ > 0 && now_.same_channels) {
      try_gpu(entry, replay(0), 0, leave_at, -1, Order::replay, time_);
    } else {
      if (filled_ == 0 && nvs_ < 0) {
        // A reference in the order of the file, from the GPU nearest to the NIC that it can write
        // to.
        int first = 0;
        for (int g = 0; g < count; ++g) {
          if (net_gpu_[n * gpus_.size() + g].path->hops() <
              net_gpu_[n * gpus_.size() + first].path->hops()) {
            first = g;
          }
        }
        std::int64_t purse = 1 << 10;
        try_gpu(entry, first, 0, leave_at, -1, Order::file, purse);
        if (purse == -1) time_ = -1;
      }
      const std::vector<int>& near = near_gpus_[n];
      for (std::size_t g = 0; g < near.size() && time_ > 0; ++g) {
        try_gpu(entry, near[(static_cast<std::size_t>(filled_) + g) % near.size()], 0, leave_at, -1,
                Order::free, time_);
      }
    }
    share_wire(-bw);
  }
}

float Searcher::wires_bound(float speed) const {
  float total = 0;
  std::set<int> seen;
  for (std::size_t n = 0; n < nets_.size(); ++n) {
    if (seen.insert(wire_[n]).second) {
      total += std::floor(graph_.nodes[nets_[n]].net.bw / speed + 1e-4F) * speed;
    }
  }
  return total;
}

/// Two islands of NVLink with something slower in between: a tree works better there than a ring,
/// but needs two channels, and has as many as the ring.
bool Searcher::split_in_two() const {
  std::vector<int> island(gpus_.size());
  std::map<int, int> sizes;
  for (std::size_t g = 0; g < gpus_.size(); ++g) {
    island[g] = static_cast<int>(g);
    for (std::size_t p = 0; p < g; ++p) {
      if (gpu_gpu_[g * gpus_.size() + p].path->type == PathType::nvl) island[g] = island[p];
    }
    ++sizes[island[g]];
  }
  return std::count_if(sizes.begin(), sizes.end(), [](const auto& s) { return s.second > 1; }) == 2;
}

ChannelGraph Searcher::run() {
  const int count = gpu_count();
  best_.id = options_.id;
  best_.pattern = options_.pattern;
  if (count == 0) return best_;
  min_channels_ = options_.min_channels;
  max_channels_ = options_.max_channels;
  // AMD's numbers are not compute capabilities.
  const bool amd = !graph_.nodes[gpus_[0]].gpu.gcn.empty();
  const int sm = amd ? 80 : graph_.min_sm();
  const bool ring = options_.pattern == Pattern::ring;
  const bool nvls = options_.pattern == Pattern::nvls;

  PathType least_intra = PathType::dis, most_intra = PathType::loc;
  for (int a = 0; a < count; ++a) {
    for (int b = 0; b < count; ++b) {
      if (a == b) continue;
      const PathType type = gpu_gpu_[a * gpus_.size() + b].path->type;
      least_intra = std::min(least_intra, type);
      most_intra = std::max(most_intra, type);
    }
  }
  if (count == 1) least_intra = PathType::loc;
  PathType least_inter = PathType::pix, most_inter = PathType::pix;
  if (between_) {
    least_inter = PathType::dis;
    for (const Route& found : gpu_net_) {
      least_inter = std::min(least_inter, found.path->type);
      most_inter = std::max(most_inter, found.path->type);
    }
  }
  const bool crossing = between_ && nets_.size() > 1 &&
                        (ring || options_.pattern == Pattern::balanced_tree ||
                         options_.pattern == Pattern::split_tree);
  const int cross_nic = crossing ? options_.cross_nic : 0;
  best_.cross_nic = cross_nic == 1 ? 1 : 0;
  best_.type_intra = least_intra;
  best_.type_inter = least_inter;
  best_.same_channels = !nvls;

  if (nvls && (nvs_ < 0 || sm < 90)) return best_;
  if (nvls) max_channels_ = std::min(max_channels_, count);
  if (options_.pattern == Pattern::collnet_direct) max_channels_ = std::min(max_channels_, count);
  if (count == 1 && !ring) best_.pattern = Pattern::tree;
  // All GPUs must pull evenly when nobody is outside.
  if (nvls && !between_) min_channels_ = max_channels_;

  if (ring && split_in_two() && max_channels_ >= 2) min_channels_ = std::max(min_channels_, 2);

  const Limits most = limits(graph_, paths_, between_);
  float total = most.total;
  if (count > 1 && !ring) total *= static_cast<float>(count) / static_cast<float>(count - 1);
  const std::vector<float> list = speeds(sm, between_);
  std::size_t speed = 0;
  while (speed + 1 < list.size() &&
         (list[speed] > most.widest || list[speed] * static_cast<float>(min_channels_) > total)) {
    ++speed;
  }
  const bool same_first = !nvls;
  now_ = best_;
  now_.bw_intra = now_.bw_inter = list[speed];
  std::int64_t purse = options_.budget;

  // One try with the settings of now_. Returns true if nothing better is possible.
  const auto attempt = [&] {
    const std::int64_t limit = now_.same_channels              ? options_.budget_same_channels
                               : now_.pattern == Pattern::tree ? options_.budget_tree
                                                               : options_.budget_try;
    time_ = limit;
    filled_ = 0;
    now_.hops = 0;
    now_.channels.clear();
    purse -= limit;
    channels();
    if (time_ == -1) return true;
    if (static_cast<float>(best_.count()) * best_.bw_inter >= most.total && best_.count() > 0) {
      return true;
    }
    if (between_ && best_.count() > 0 && ring) {
      // Nothing is left to gain if the wires are full at this speed and would not carry more at
      // a lower one.
      float bound = 0;
      for (const float lower : list) {
        if (lower <= best_.bw_inter && lower > 0.49F * best_.bw_inter) {
          bound = std::max(bound, wires_bound(lower));
        }
      }
      if (static_cast<float>(best_.count()) * best_.bw_inter >= bound - 1e-3F) return true;
    }
    return false;
  };

  for (;;) {
    if (attempt()) break;
    if (now_.same_channels) {
      now_.same_channels = false;
      continue;
    }
    now_.same_channels = same_first;
    if (time_ > 0) purse += time_;
    if (purse < 0 && best_.count() > 0) break;
    if ((sm >= 90 || best_.count() == 0) && now_.pattern == Pattern::balanced_tree) {
      now_.pattern = Pattern::tree;
      continue;
    }
    now_.pattern = count == 1 && !ring ? Pattern::tree : options_.pattern;
    const PathType intra_limit = between_ ? now_.type_inter : most_intra;
    if (now_.type_intra < intra_limit &&
        (best_.count() == 0 || now_.type_intra < best_.type_intra)) {
      now_.type_intra = next(now_.type_intra);
      if (now_.type_intra < PathType::dis) continue;
    }
    now_.type_intra = least_intra;
    if (between_ && now_.type_inter < most_inter &&
        (best_.count() == 0 || now_.type_inter < best_.type_inter ||
         now_.type_inter < PathType::pxn)) {
      now_.type_inter = next(now_.type_inter);
      if (now_.type_inter < PathType::dis) continue;
    }
    now_.type_inter = least_inter;
    if (cross_nic == 2 && now_.cross_nic == 0 && (ring || now_.pattern == Pattern::balanced_tree)) {
      now_.cross_nic = 2;
      continue;
    }
    now_.cross_nic = cross_nic == 1 ? 1 : 0;
    if (speed + 1 < list.size() &&
        (best_.count() == 0 || list[speed + 1] / best_.bw_inter > 0.49F)) {
      ++speed;
      now_.bw_intra = now_.bw_inter = list[speed];
      continue;
    }
    break;
  }

  // Wide channels are split in two, so that more of a GPU's lanes share the work.
  if (best_.count() > 0 && !nvls && best_.bw_intra >= 25 &&
      !(sm > 80 && best_.bw_intra < 50 && best_.count() > 4)) {
    const int before = best_.count();
    const int after = std::min(before * 2, max_channels_);
    const float parts = static_cast<float>((after + before - 1) / before);
    for (int c = before; c < after; ++c) best_.channels.push_back(best_.channels[c - before]);
    best_.bw_intra /= parts;
    best_.bw_inter /= parts;
  }
  // Second pass: the same number of channels, faster.
  if (best_.count() > 0) {
    speed = 0;
    while (speed + 1 < list.size() && list[speed] > best_.bw_inter) ++speed;
    now_ = best_;
    now_.bw_intra = now_.bw_inter = list[speed];
    min_channels_ = best_.count();
    while (speed > 0) {
      --speed;
      if (ring) {
        now_.bw_intra = now_.bw_inter = list[speed];
      } else if (nvls && now_.bw_inter == best_.bw_inter && now_.bw_inter < now_.bw_intra * 2) {
        min_channels_ = max_channels_ = best_.count();
        now_.bw_inter = list[speed];
      } else if (!nvls && now_.bw_intra == best_.bw_intra && now_.bw_intra < now_.bw_inter * 2) {
        now_.bw_intra = list[speed];
      } else {
        break;
      }
      const ChannelGraph setting = now_;
      const int before = best_.count();
      const float bw_before = best_.bw_intra + best_.bw_inter;
      attempt();
      const bool gained = best_.count() != before || best_.bw_intra + best_.bw_inter != bw_before;
      now_ = setting;
      if (ring && !gained && time_ == 0) break;
    }
  }
  if (best_.count() == 0 && !options_.collnet && !nvls &&
      options_.pattern != Pattern::collnet_direct) {
    ChannelOrder order;
    for (int g = 0; g < count; ++g) order.ranks.push_back(rank(g));
    if (between_) order.net_in = order.net_out = dev(0);
    best_.channels.push_back(std::move(order));
    best_.bw_intra = best_.bw_inter = 0.1F;
    best_.type_intra = best_.type_inter = PathType::sys;
  }
  // Without a network the figure for it means nothing; NVLS has a use for its own.
  if (!between_ && !nvls) best_.bw_inter = best_.bw_intra;
  return best_;
}

}  // namespace

Limits limits(const Graph& graph, const Paths& paths, bool between) {
  Limits found;
  std::vector<int> gpus;
  for (const int gpu : graph.of(NodeType::gpu)) {
    if (graph.nodes[gpu].gpu.rank >= 0) gpus.push_back(gpu);
  }
  const std::vector<int> others = between ? graph.of(NodeType::net) : gpus;
  if (gpus.size() == 1 && !between) return {gbps::loc, gbps::loc};
  for (const int gpu : gpus) {
    for (const int other : others) {
      const Path& path = paths.at(gpu, other);
      if (other != gpu && path.reaches()) found.widest = std::max(found.widest, path.bw);
    }
    float fabric = 0, host = 0;
    for (const int l : graph.nodes[gpu].out) {
      const Link& link = graph.links[l];
      if (link.type == LinkType::nvl) {
        fabric += link.bw;
      } else {
        host = std::max(host, link.bw);
      }
    }
    found.total = std::max(found.total, std::max(fabric, host));
  }
  return found;
}

ChannelGraph search(const Graph& graph, const Paths& paths, const SearchOptions& options) {
  return Searcher(graph, paths, options).run();
}

ChannelPlan search_all(const Graph& graph, const Paths& paths, int ranks) {
  int local = 0;
  for (const int gpu : graph.of(NodeType::gpu)) local += graph.nodes[gpu].gpu.rank >= 0 ? 1 : 0;
  SearchOptions options;
  options.between = ranks > local;
  ChannelPlan plan;
  plan.ring = search(graph, paths, options);
  // Rings gain from a longer search (a third on one machine of 16 GPUs); what follows does not.
  options.budget /= 2;
  options.budget_try /= 2;
  options.pattern = Pattern::balanced_tree;
  options.id = 1;
  options.min_channels = options.max_channels = std::max(1, plan.ring.count());
  plan.tree = search(graph, paths, options);
  if (plan.tree.count() > 0 && plan.tree.bw_intra <= 0.1F && options.max_channels > 1) {
    // As many trees as rings were not found: fewer will do, used by several channels each.
    options.min_channels = 1;
    ChannelGraph fewer = search(graph, paths, options);
    const int count = fewer.count();
    const int wanted = plan.ring.count();
    const float each =
        static_cast<float>(count) / static_cast<float>((wanted + count - 1) / count * count);
    for (int c = count; c < wanted; ++c) fewer.channels.push_back(fewer.channels[c - count]);
    fewer.bw_intra *= each;
    fewer.bw_inter *= each;
    if (fewer.bw_intra > plan.tree.bw_intra) plan.tree = std::move(fewer);
    options.min_channels = options.max_channels;
  }
  options.pattern = Pattern::tree;
  options.id = 2;
  options.collnet = true;
  plan.collnet_chain = search(graph, paths, options);
  options.pattern = Pattern::collnet_direct;
  options.id = 4;
  options.min_channels = 1;
  options.max_channels = 64;
  plan.collnet_direct = search(graph, paths, options);
  options.pattern = Pattern::nvls;
  options.id = 3;
  options.collnet = false;
  plan.nvls = search(graph, paths, options);
  return plan;
}

std::string check(const ChannelGraph& found, const Graph& graph, const Paths& paths) {
  std::vector<int> ranks;
  for (const int gpu : graph.of(NodeType::gpu)) {
    if (graph.nodes[gpu].gpu.rank >= 0) ranks.push_back(graph.nodes[gpu].gpu.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  std::map<int, int> nets;
  for (const int net : graph.of(NodeType::net)) nets[graph.nodes[net].net.dev] = net;
  std::vector<double> load(graph.links.size(), 0);
  std::string wrong;
  const auto edge = [&](int c, int from, int to, float bw, PathType worst) {
    const Path& path = paths.at(from, to);
    if (path.type > worst && wrong.empty()) {
      wrong = fmt::format("channel {}: {} to {} is {}, worse than {}", c, graph.label(from),
                          graph.label(to), name(path.type), name(worst));
    }
    for (const int l : path.links) load[l] += bw;
  };
  for (int c = 0; c < found.count(); ++c) {
    const ChannelOrder& order = found.channels[c];
    std::vector<int> sorted = order.ranks;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != ranks) return fmt::format("channel {} does not hold every rank once", c);
    if (found.pattern == Pattern::nvls || found.pattern == Pattern::collnet_direct) continue;
    for (std::size_t i = 0; i + 1 < order.ranks.size(); ++i) {
      edge(c, graph.gpu_of_rank(order.ranks[i]), graph.gpu_of_rank(order.ranks[i + 1]),
           found.bw_intra, found.type_intra);
    }
    const int first = graph.gpu_of_rank(order.ranks.front());
    const int last = graph.gpu_of_rank(order.ranks.back());
    if (order.net_in >= 0) {
      if (nets.count(order.net_in) == 0 || nets.count(order.net_out) == 0) {
        return fmt::format("channel {} uses NET {} or {}, which is not there", c, order.net_in,
                           order.net_out);
      }
      edge(c, nets[order.net_in], first, found.bw_inter, found.type_inter);
      if (found.pattern == Pattern::ring) {
        edge(c, last, nets[order.net_out], found.bw_inter, found.type_inter);
      }
    } else if (found.pattern == Pattern::ring && first != last) {
      edge(c, last, first, found.bw_intra, found.type_intra);
    }
  }
  for (std::size_t l = 0; l < load.size() && wrong.empty(); ++l) {
    if (load[l] > graph.links[l].bw * 1.001 + 0.01) {
      const Link& link = graph.links[l];
      wrong = fmt::format("{} to {} carries {:g} GB/s of {:g}", graph.label(link.from),
                          graph.label(link.to), load[l], link.bw);
    }
  }
  return wrong;
}

}  // namespace ccl::topo
