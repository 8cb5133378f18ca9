#include <algorithm>
#include <array>

#include "topo/search/searcher.hpp"

namespace ccl::topo::detail {

bool Searcher::improves() const {
  const int found = filled_;
  if (found < min_channels_) return false;
  const float mine = static_cast<float>(found) * now_.bw_intra;
  const float theirs = static_cast<float>(best_.count()) * best_.bw_intra;
  if (now_.pattern == Pattern::nvls) {
    // A channel is a GPU that pulls from the switch: more are better.
    if (found > best_.count() && found <= gpu_count()) return true;
    return static_cast<float>(found) * now_.bw_inter >
           static_cast<float>(best_.count()) * best_.bw_inter;
  }
  // Bandwidth over a CPU is worth less: data is copied through memory of the host.
  const auto far = [](const ChannelGraph& graph) { return graph.type_inter > PathType::pxn; };
  if (between_ && best_.count() > 0 && far(now_) != far(best_)) {
    return far(now_) ? mine > theirs : mine >= theirs;
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
    // The next channel uses the same budget.
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

void Searcher::try_gpu(SearchPlace from, int gpu, int step, int leave_at, int close_at, Order order,
                       std::int64_t& time) {
  const bool start = from.index < 0;
  const SearchPlace to{End::gpu, gpu};
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
    // One list per depth, kept, because this is the innermost loop.
    const std::size_t depth =
        static_cast<std::size_t>(filled_) * gpus_.size() + static_cast<std::size_t>(step);
    while (scratch_.size() <= depth) scratch_.emplace_back();
    std::vector<int>& candidates = scratch_[depth];
    candidates.clear();
    if (order == Order::file) {
      // Continues in the order of the file, from the first GPU of the channel.
      if (used_[filled_][step + 1] != 0) return;
      candidates.push_back(step + 1);
    } else if (order == Order::replay) {
      candidates.push_back(replay(step + 1));
      if (used_[filled_][candidates[0]] != 0) return;
    } else {
      if (is_spent(gpu)) return;
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

bool Searcher::is_spent(int gpu) const {
  const std::vector<int>& out = graph_.nodes[gpus_[gpu]].out;
  return std::none_of(out.begin(), out.end(), [&](int l) { return left_[l] >= now_.bw_intra; });
}

void Searcher::leave(int gpu, int step, int leave_at, int close_at, Order order,
                     std::int64_t& time) {
  static_cast<void>(leave_at);
  const int start = net_of(now_.channels[filled_].net_in, 0);
  for (const int n : nets_for(gpu)) {
    if (now_.pattern == Pattern::tree && n != start) continue;  // one NIC for both directions
    if (now_.pattern == Pattern::ring && now_.cross_nic == 2) {
      if ((filled_ & 1) != 0 && dev(n) != now_.channels[filled_ - 1].net_in) continue;
    } else if (now_.cross_nic == 0 && wire_[n] != wire_[start]) {
      continue;
    }
    int next_leave = -1;
    float share = 1;
    if (now_.pattern == Pattern::balanced_tree) {
      // Half of the traffic goes to each of the first two GPUs.
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
    now_.hops = hops + static_cast<float>(to_net(gpu, n).hops());
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

/// Scores GPUs, sorted once per GPU and NIC, by:
/// - the width of their path to the NIC and of their PCIe link,
/// - the hops to the NIC,
/// - the width and hops of the path to them,
/// - the distance in number.
const std::vector<Searcher::Score>& Searcher::scores(int gpu, int net) {
  std::vector<Score>& list = scores_[static_cast<std::size_t>(gpu) * (nets_.size() + 1) +
                                     static_cast<std::size_t>(net + 1)];
  const int count = gpu_count();
  if (!list.empty() || count < 2) return list;
  list.reserve(static_cast<std::size_t>(count) - 1);
  for (int i = 1; i < count; ++i) {
    const int g = (gpu + i) % count;
    const Path path = between_gpus(gpu, g);
    if (!path.reaches() || path.hops() == 0) continue;
    Score score{0, 0, 0, -path.bw, path.hops(), i, g};
    if (net >= 0) {
      const Path there = from_net(net, g);
      std::get<0>(score) = -there.bw;
      std::get<1>(score) = -pci_bw_[g];
      std::get<2>(score) = there.hops();
    }
    list.push_back(score);
  }
  // GPUs that are all alike are in order, as on machines with very many.
  if (!std::is_sorted(list.begin(), list.end())) std::sort(list.begin(), list.end());
  return list;
}

void Searcher::sort_next(int gpu, int near_net, std::vector<int>& order) {
  const int count = gpu_count();
  const int net = near_net != 0 && between_ ? net_of(now_.channels[filled_].net_in, -1) : -1;
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
  // If all are alike, those far from the NIC are first, so that the near one is the last.
  if (near_net == -1 && alike) std::reverse(order.begin(), order.end());
  if (nvs_ < 0) return;
  // GPUs behind an NVSwitch are alike: only neighbors are tried, which keeps the number of peers
  // small.
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
  std::array<int, 2> neighbors{-1, -1};
  for (std::size_t i = first.size(); i-- > 0;) {
    if (std::find(order.begin(), order.end(), first[i]) != order.end())
      neighbors[kept++] = first[i];
  }
  order.assign(neighbors.begin(), neighbors.begin() + kept);
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
  const SearchPlace nowhere{End::gpu, -1};
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
      for (const int other : on_wire_[wire_[n]]) net_left_[other] -= amount;
    };
    share_wire(bw);
    const SearchPlace entry{End::net, n};
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
          if (from_net(n, g).hops() < from_net(n, first).hops()) first = g;
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

}  // namespace ccl::topo::detail
