#include <ccl/algo/cost.hpp>
#include <ccl/detail/exec/launch_shape.hpp>

#include <algorithm>
#include <array>

namespace ccl::detail {
namespace {

// - nvlink: fitted to 2 and 4 H200 over NVSwitch, launches of a CUDA graph
//   (benchmarks/results). Sentinel is fitted to a bare kernel's two-shot all-reduce on 8, whose
//   LL128 took the predicted time. A block's share is fitted to sweeps over the number of blocks;
//   Ring Simple's on 2 and 4 H200, where 32 blocks in clusters move 95 to 99 % of what 128 do.
// - shm and net: fitted to the order of candidates on 4 processes of one host, and on 4 and 8 of
//   two and four hosts over TCP (benchmarks/network/across_hosts.cpp).
// - gpu_net: fitted to 4 H200 taken for two hosts, over TCP loopback, and to 2 with four threads
//   that move the bytes (docs/validation/tcp.md). LL128's rate puts it before Simple up to 64 KiB
//   of send_recv and 256 KiB of all_to_all and broadcast. An RDMA network has shorter hops.
// - pcie and gpu_host: estimates without a measurement; only their order counts.
constexpr Rates table[path_count][2][packing_count] = {
    // simple, ll, ll128 over wires; the same over peers, and sentinel
    {{{4.5, 1.5, 364, 22, 347}, {1.5, 0.8, 170, 12}, {1.8, 0.83, 290, 16}},
     {{3.0, 2.5, 366, 20}, {0.5, 1.25, 150, 12}, {0.5, 1.27, 290, 12}, {0.5, 1.37, 315, 12}}},
    {{{3.0, 4.0, 22, 8}, {2.0, 1.8, 11, 6}, {2.0, 1.8, 20, 8}},
     {{4.0, 4.0, 22, 8}, {1.5, 2.0, 11, 6}, {1.5, 2.0, 20, 8}, {1.5, 2.0, 21, 8}}},
    {{{3.0, 5.0, 11, 6}, {2.0, 2.2, 5.5, 4}, {2.0, 2.2, 10, 6}},
     {{4.0, 5.0, 11, 6}, {2.0, 2.5, 5.5, 4}, {2.0, 2.5, 10, 6}, {2.0, 2.5, 10.5, 6}}},
    {{{26, 10, 8.0, 0}, {7, 9.7, 1.2, 0}, {8, 9.2, 4.0, 0}},
     {{26, 10, 8.0, 0}, {7, 9.7, 1.2, 0}, {8, 9.2, 4.0, 0}}},
    {{{0.3, 0.35, 6.0, 0}, {0.3, 0.4, 2.0, 0}, {0.4, 0.5, 3.0, 0}},
     {{0.3, 0.35, 6.0, 0}, {0.3, 0.4, 2.0, 0}, {0.4, 0.5, 3.0, 0}}},
    {{{4.0, 20, 2.5, 0}, {4.0, 20, 1.2, 0}, {4.0, 21, 2.0, 0}},
     {{4.0, 20, 2.5, 0}, {4.0, 20, 1.2, 0}, {4.0, 21, 2.0, 0}}},
};

/// Copy engines, one copy per hop. nvlink: fitted to windows of 16 MiB to 256 MiB on 4 H200, graphs
/// of 20 calls. These took 67.5, 168 and 559 us of AllGather and 712 us of SendRecv. Others:
/// estimates.
constexpr Rates engines[path_count] = {{6.5, 9.5, 386, 0}, {10, 12, 24, 0}, {12, 15, 12, 0},
                                       {15, 30, 3.0, 0},   {1, 1, 6.0, 0},  {5, 12, 2.5, 0}};

/// GB/s of the links of a GPU in the machine that the rates above belong to. nvlink: 18 links of
/// 20.6 on H200. pcie: PCIe 4.0. gpu_host: two sockets.
constexpr double links_of_the_rates[path_count] = {370.8, 24, 12, 0, 0, 0};

/// Returns what a block moves over NVLink, beside a block of Hopper. The generations relate as in
/// NCCL 2.30's bandwidth of LL128 for a channel: 20 GB/s up to Ampere, 36.7 on Hopper, 40 on
/// Blackwell (src/graph/tuning.cc).
double block_speed(int compute_capability) {
  if (compute_capability >= 100) return 40 / 36.7;
  return compute_capability >= 90 || compute_capability == 0 ? 1 : 20 / 36.7;
}

/// Returns the part of the bandwidth of its links that a GPU has by NVLink multicast, which ccl has
/// not measured: that of NCCL 2.30's model (src/graph/tuning.cc).
double part_by_switches(int compute_capability) {
  return compute_capability >= 100 ? 0.74 : 0.85;
}

}  // namespace

std::string_view name(Path path) {
  constexpr std::array<std::string_view, path_count> names{"nvlink",  "pcie", "gpu-host",
                                                           "gpu-net", "shm",  "net"};
  return names[std::size_t(path)];
}

Rates rates(Path path, Mover mover, Packing packing) {
  if (mover == Mover::engines) return engines[int(path)];
  if (mover == Mover::switches) return table[int(path)][int(Mover::peers)][int(packing)];
  return table[int(path)][int(mover)][int(packing)];
}

Rates rates_inside(Path path, Mover mover, Packing packing, const HostFacts& host) {
  Rates by = rates(path, mover, packing);
  if (host.gpu_gbs <= 0 || path == Path::gpu_net || path == Path::shm || path == Path::net) {
    return by;
  }
  // Edges of a host with NVLink may go another way, whose bandwidth is not that of its links.
  if ((path == Path::nvlink) != host.nvlink) return by;
  const double links = host.gpu_gbs / links_of_the_rates[int(path)];
  by.gbs *= links;
  by.few_gbs *= links;
  if (path == Path::nvlink) by.block_gbs *= block_speed(host.compute_capability);
  if (mover == Mover::switches) by.gbs *= part_by_switches(host.compute_capability);
  return by;
}

Rates rates_between(Path path, Mover mover, Packing packing, const NetworkFacts& network,
                    const HostFacts& host) {
  Rates by = rates_inside(path, mover, packing, host);
  const bool known =
      path == Path::gpu_net && mover == Mover::wires && network.rdma && network.host_gbs > 0;
  if (!known) return by;
  // Latencies of NCCL 2.30's model for rings over a network (src/graph/tuning.cc), in us.
  struct Published {
    double base_us, hop_us;
    double part;  // of the bandwidth that is payload
  };
  constexpr std::array<Published, packing_count> published{
      {{8.4, 14.0, 1.0}, {6.6, 2.7, 0.5}, {14.0, 4.0, 120.0 / 128}, {14.0, 4.0, 1.0}}};
  const Published& of = published[std::size_t(packing)];
  by.base_us = of.base_us;
  by.hop_us = of.hop_us;
  const Rates lanes = rates_inside(Path::nvlink, mover, packing, host);
  by.gbs = std::min(network.host_gbs * of.part, lanes.gbs);
  by.block_gbs = lanes.block_gbs;
  return by;
}

int channels_of_way(Packing packing, int ways, const NetworkFacts& network, const HostFacts& host,
                    int max_blocks) {
  if (!network.rdma || network.host_gbs <= 0) return 1;
  const Rates by = rates_between(Path::gpu_net, Mover::wires, packing, network, host);
  const int together = groups_together(group_lanes(packing != Packing::simple));
  const double way_gbs = by.gbs / ways, channel_gbs = by.block_gbs / together;
  // NCCL 2.30 has at most 4 channels for each that its search finds (src/graph/connect.cc).
  constexpr int most = 4;
  int channels = 1;
  while (channels < most && channels * channel_gbs < way_gbs &&
         2 * channels * ways <= together * max_blocks) {
    channels *= 2;
  }
  return channels;
}

// Fitted for shm and net as above. For GPUs it is part of the time of a launch.
double level_us(Path path) {
  return path == Path::shm || path == Path::net ? 8 : 0;
}

double predict_us(const Rates& rates, const CostTerms& cost_terms, double bytes, int blocks) {
  return predict_us(rates, rates, 1, cost_terms, bytes, blocks);
}

double predict_us(const Rates& rates, const Rates& near, double far, const CostTerms& cost_terms,
                  double bytes, int blocks) {
  double gbs = rates.gbs;
  if (rates.few_gbs > 0 && blocks <= 64) gbs = rates.few_gbs;
  if (rates.block_gbs > 0) gbs = std::min(gbs, rates.block_gbs * std::max(blocks, 1));
  const double hop_us = far * rates.hop_us + (1 - far) * near.hop_us;
  return rates.base_us + cost_terms.hops_on(blocks) * hop_us +
         cost_terms.volume_on(blocks) * bytes / (gbs * 1e3);
}

}  // namespace ccl::detail
