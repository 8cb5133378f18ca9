#include <ccl/topo/search.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "topo/search/searcher.hpp"

namespace ccl::topo {
namespace detail {
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

/// The lists for newer GPUs end at NVLink's lowest speed; slower machines continue with the common
/// list.
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
}  // namespace

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

/// True for two islands of NVLink with a slower link in between. A tree is faster there than a
/// ring, but needs two channels, and has as many as the ring.
bool Searcher::split_in_two() const {
  std::vector<int> island(gpus_.size());
  std::map<int, int> sizes;
  for (std::size_t g = 0; g < gpus_.size(); ++g) {
    island[g] = static_cast<int>(g);
    for (std::size_t p = 0; p < g; ++p) {
      if (between_gpus(int(g), int(p)).type == PathType::nvl) island[g] = island[p];
    }
    ++sizes[island[g]];
  }
  return std::count_if(sizes.begin(), sizes.end(), [](const auto& s) { return s.second > 1; }) == 2;
}

Searcher::Scan Searcher::make_scan() const {
  Scan scan;
  // AMD's numbers are not compute capabilities.
  const bool amd = !graph_.nodes[gpus_[0]].gpu.gcn.empty();
  scan.sm = amd ? 80 : graph_.min_sm();
  scan.min_intra = PathType::dis;
  const int count = gpu_count();
  for (int a = 0; a < count; ++a) {
    for (int b = 0; b < count; ++b) {
      if (a == b) continue;
      const PathType type = between_gpus(a, b).type;
      scan.min_intra = std::min(scan.min_intra, type);
      scan.max_intra = std::max(scan.max_intra, type);
    }
  }
  if (count == 1) scan.min_intra = PathType::loc;
  if (between_) {
    scan.min_inter = PathType::dis;
    for (int g = 0; g < count; ++g) {
      for (int n = 0; n < static_cast<int>(nets_.size()); ++n) {
        const PathType type = to_net(g, n).type;
        scan.min_inter = std::min(scan.min_inter, type);
        scan.max_inter = std::max(scan.max_inter, type);
      }
    }
  }
  const bool crossing = between_ && nets_.size() > 1 &&
                        (is_ring() || options_.pattern == Pattern::balanced_tree ||
                         options_.pattern == Pattern::split_tree);
  scan.cross_nic = crossing ? options_.cross_nic : 0;
  scan.bounds = limits(graph_, paths_, between_);
  scan.speeds = speeds(scan.sm, between_);
  scan.budget = options_.budget;
  return scan;
}

void Searcher::set_channel_bounds() {
  const int count = gpu_count();
  min_channels_ = options_.min_channels;
  max_channels_ = options_.max_channels;
  if (is_nvls()) max_channels_ = std::min(max_channels_, count);
  if (options_.pattern == Pattern::collnet_direct) max_channels_ = std::min(max_channels_, count);
  // NVLS inside one machine needs the same load on all GPUs.
  if (is_nvls() && !between_) min_channels_ = max_channels_;
  if (is_ring() && split_in_two() && max_channels_ >= 2) min_channels_ = std::max(min_channels_, 2);
}

void Searcher::set_first_speed(Scan& scan) {
  float total = scan.bounds.total;
  const int count = gpu_count();
  if (count > 1 && !is_ring()) total *= static_cast<float>(count) / static_cast<float>(count - 1);
  const std::vector<float>& list = scan.speeds;
  while (scan.speed + 1 < list.size() &&
         (list[scan.speed] > scan.bounds.widest ||
          list[scan.speed] * static_cast<float>(min_channels_) > total)) {
    ++scan.speed;
  }
  now_ = best_;
  now_.bw_intra = now_.bw_inter = list[scan.speed];
}

bool Searcher::attempt(Scan& scan) {
  const std::int64_t limit = now_.same_channels              ? options_.budget_same_channels
                             : now_.pattern == Pattern::tree ? options_.budget_tree
                                                             : options_.budget_try;
  time_ = limit;
  filled_ = 0;
  now_.hops = 0;
  now_.channels.clear();
  scan.budget -= limit;
  channels();
  if (time_ == -1) return true;
  if (best_.count() == 0) return false;
  if (static_cast<float>(best_.count()) * best_.bw_inter >= scan.bounds.total) return true;
  if (!between_ || !is_ring()) return false;
  // The result is final if the wires are full at this speed and would not carry more at a lower
  // one.
  float bound = 0;
  for (const float lower : scan.speeds) {
    if (lower <= best_.bw_inter && lower > 0.49F * best_.bw_inter) {
      bound = std::max(bound, wires_bound(lower));
    }
  }
  return static_cast<float>(best_.count()) * best_.bw_inter >= bound - 1e-3F;
}

bool Searcher::advance_to_nics(const Scan& scan) {
  const bool near = now_.type_inter <= PathType::pxn;
  const bool crosses = scan.cross_nic == 2 && (is_ring() || now_.pattern == Pattern::balanced_tree);
  const bool crossed = best_.count() > 0 && best_.cross_nic == 2;
  const PathType last = near ? std::min(scan.max_inter, PathType::pxn) : scan.max_inter;
  if (between_ && now_.type_inter < last &&
      (best_.count() == 0 || now_.type_inter < best_.type_inter ||
       now_.type_inter < PathType::pxn || crossed)) {
    now_.type_inter = next(now_.type_inter);
    if (now_.type_inter < PathType::dis) return true;
  }
  const PathType first_far = std::max(scan.min_inter, next(PathType::pxn));
  if (crosses && now_.cross_nic == 0) {
    now_.cross_nic = 2;
    now_.type_inter = near ? scan.min_inter : first_far;
    return true;
  }
  now_.cross_nic = scan.cross_nic == 1 ? 1 : 0;
  now_.type_inter = scan.min_inter;
  if (!near || !between_ || scan.max_inter <= PathType::pxn) return false;
  if (best_.count() > 0 && best_.type_inter <= PathType::pxn && !crossed) return false;
  now_.type_inter = first_far;
  return now_.type_inter < PathType::dis;
}

bool Searcher::advance(Scan& scan) {
  if (now_.same_channels) {
    now_.same_channels = false;
    return true;
  }
  now_.same_channels = !is_nvls();
  if (time_ > 0) scan.budget += time_;
  if (scan.budget < 0 && best_.count() > 0) return false;
  if ((scan.sm >= 90 || best_.count() == 0) && now_.pattern == Pattern::balanced_tree) {
    now_.pattern = Pattern::tree;
    return true;
  }
  now_.pattern = gpu_count() == 1 && !is_ring() ? Pattern::tree : options_.pattern;
  const PathType intra_limit = between_ ? now_.type_inter : scan.max_intra;
  if (now_.type_intra < intra_limit && (best_.count() == 0 || now_.type_intra < best_.type_intra)) {
    now_.type_intra = next(now_.type_intra);
    if (now_.type_intra < PathType::dis) return true;
  }
  now_.type_intra = scan.min_intra;
  if (advance_to_nics(scan)) return true;
  const std::vector<float>& list = scan.speeds;
  if (scan.speed + 1 < list.size() &&
      (best_.count() == 0 || list[scan.speed + 1] / best_.bw_inter > 0.49F)) {
    ++scan.speed;
    now_.bw_intra = now_.bw_inter = list[scan.speed];
    return true;
  }
  return false;
}

void Searcher::split_wide_channels(const Scan& scan) {
  if (is_nvls() || best_.bw_intra < 25) return;
  if (scan.sm > 80 && best_.bw_intra < 50 && best_.count() > 4) return;
  const int before = best_.count();
  const int after = std::min(before * 2, max_channels_);
  const float parts = static_cast<float>((after + before - 1) / before);
  for (int c = before; c < after; ++c) best_.channels.push_back(best_.channels[c - before]);
  best_.bw_intra /= parts;
  best_.bw_inter /= parts;
}

void Searcher::raise_speed(Scan& scan) {
  const std::vector<float>& list = scan.speeds;
  std::size_t speed = 0;
  while (speed + 1 < list.size() && list[speed] > best_.bw_inter) ++speed;
  now_ = best_;
  now_.bw_intra = now_.bw_inter = list[speed];
  min_channels_ = best_.count();
  while (speed > 0) {
    --speed;
    if (is_ring()) {
      now_.bw_intra = now_.bw_inter = list[speed];
    } else if (is_nvls() && now_.bw_inter == best_.bw_inter && now_.bw_inter < now_.bw_intra * 2) {
      min_channels_ = max_channels_ = best_.count();
      now_.bw_inter = list[speed];
    } else if (!is_nvls() && now_.bw_intra == best_.bw_intra && now_.bw_intra < now_.bw_inter * 2) {
      now_.bw_intra = list[speed];
    } else {
      return;
    }
    const ChannelGraph setting = now_;
    const int before = best_.count();
    const float bw_before = best_.bw_intra + best_.bw_inter;
    attempt(scan);
    const bool gained = best_.count() != before || best_.bw_intra + best_.bw_inter != bw_before;
    now_ = setting;
    if (is_ring() && !gained && time_ == 0) return;
  }
}

void Searcher::use_rank_order() {
  ChannelOrder order;
  for (int g = 0; g < gpu_count(); ++g) order.ranks.push_back(rank(g));
  if (between_) order.net_in = order.net_out = dev(0);
  best_.channels.push_back(std::move(order));
  best_.bw_intra = best_.bw_inter = 0.1F;
  best_.type_intra = best_.type_inter = PathType::sys;
}

ChannelGraph Searcher::run() {
  best_.id = options_.id;
  best_.pattern = options_.pattern;
  if (gpu_count() == 0) return best_;
  Scan scan = make_scan();
  best_.cross_nic = scan.cross_nic == 1 ? 1 : 0;
  best_.type_intra = scan.min_intra;
  best_.type_inter = scan.min_inter;
  best_.same_channels = !is_nvls();
  if (is_nvls() && (nvs_ < 0 || scan.sm < 90)) return best_;
  if (gpu_count() == 1 && !is_ring()) best_.pattern = Pattern::tree;
  set_channel_bounds();
  set_first_speed(scan);
  while (!attempt(scan) && advance(scan)) {
  }
  if (best_.count() > 0) {
    split_wide_channels(scan);
    raise_speed(scan);
  } else if (!options_.collnet && !is_nvls() && options_.pattern != Pattern::collnet_direct) {
    use_rank_order();
  }
  // Without a network its speed has no meaning, except for NVLS.
  if (!between_ && !is_nvls()) best_.bw_inter = best_.bw_intra;
  return best_;
}

}  // namespace detail

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
      const Path path = paths.at(gpu, other);
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
  return detail::Searcher(graph, paths, options).run();
}

ChannelPlan search_all(const Graph& graph, const Paths& paths, int ranks, int cross_nic) {
  int local = 0;
  for (const int gpu : graph.of(NodeType::gpu)) local += graph.nodes[gpu].gpu.rank >= 0 ? 1 : 0;
  SearchOptions options;
  options.between = ranks > local;
  options.cross_nic = cross_nic;
  ChannelPlan plan;
  // Rings gain from a longer search: a third on one machine of 16 GPUs, and the eighth NIC of 8
  // GPUs with NICs of 400 Gbit/s. Later searches do not.
  options.budget *= 2;
  plan.ring = search(graph, paths, options);
  options.budget /= 4;
  options.budget_try /= 2;
  options.pattern = Pattern::balanced_tree;
  options.id = 1;
  options.min_channels = options.max_channels = std::max(1, plan.ring.count());
  plan.tree = search(graph, paths, options);
  if (plan.tree.count() > 0 && plan.tree.bw_intra <= 0.1F && options.max_channels > 1) {
    // If fewer trees than rings were found, several channels use each tree.
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

}  // namespace ccl::topo
