#pragma once

#include <ccl/detail/group/kernels.cuh>
#include <ccl/detail/group/registry.hpp>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

namespace ccl::detail {

template <class Call>
struct RegisteredKernels<ListKernels<Call>> {
  using Member = RegisteredKernels<AsMember<Call>>;
  using Work = typename Call::Work;
  using Counts = typename CountsOf<typename Member::Counts>::Type;
  static constexpr int max_lanes = Member::max_lanes, most = max_listed<Call>;
  using Group = typename Member::template Lanes<max_lanes>;
  template <int Align, int Ranks>
  using Body = typename Member::template Body<Align, Ranks>;

  static int launch(const DeviceTarget& target, std::span<const Work> works) {
    return on_device(target.device, [&] { return launch_for(Counts{}, target, works); });
  }
  template <int... Ranks>
  static cudaError_t launch_for(RankCounts<Ranks...>, const DeviceTarget& target,
                                std::span<const Work> works) {
    const int kernel = Counts::kernel_for(ranks_of(works.front()));
    const bool aligned =
        std::ranges::all_of(works, [](const Work& work) { return alignment(work) == 16; });
    cudaError_t result = cudaErrorInvalidValue;
    const auto as = [&]<int R>(std::integral_constant<int, R>) {
      result =
          aligned ? launch_as<Body<16, R>>(target, works) : launch_as<Body<1, R>>(target, works);
      return true;
    };
    (void)(((Ranks == 0 || Ranks == kernel) && as(std::integral_constant<int, Ranks>{})) || ...);
    return result;
  }
  template <class B>
  static cudaError_t launch_as(const DeviceTarget& target, std::span<const Work> works) {
    using List = KernelList<Group, B, most>;
    const int count = int(works.size());
    if (count > most || target.max_blocks < count) return cudaErrorInvalidConfiguration;
    if (const cudaError_t e = Member::template check<Group, B>(works.front()); e != cudaSuccess) {
      return e;
    }
    Index all_bytes = 0;
    for (const Work& work : works) all_bytes += message_bytes(work);
    std::vector<Work> spread(works.begin(), works.end());
    List list;
    int lanes = 0;
    list.first_block[0] = 0;
    for (int n = 0; n < count; ++n) {
      Work& work = spread[std::size_t(n)];
      const CudaShape shape = Member::template spread<Group, B, max_lanes>(
          work, share_of(target, count, message_bytes(work), all_bytes));
      list.first_block[n + 1] = list.first_block[n] + shape.blocks;
      lanes = std::max(lanes, div_up(shape.channels, shape.blocks) * Group::width);
    }
    for (std::size_t n = 0; n < spread.size(); ++n) {
      for (std::size_t m = 0; m < spread.size(); ++m) {
        beside(spread[n], spread[m], int(m) - int(n));
      }
      std::memcpy(list.works[n], &spread[n], sizeof(Work));
    }
    return CudaExecutor::launch_list(list, list.first_block[count], lanes, target.share,
                                     target.stream);
  }
  template <int... Ranks>
  static cudaError_t load_as(RankCounts<Ranks...>) {
    cudaError_t result = cudaSuccess;
    const auto good = [&](cudaError_t e) {
      if (result == cudaSuccess) result = e;
    };
    (good(CudaExecutor::load_list<Group, Body<16, Ranks>, most>()), ...);
    (good(CudaExecutor::load_list<Group, Body<1, Ranks>, most>()), ...);
    return result;
  }
  static int load(int device) {
    return on_device(device, [] { return load_as(Counts{}); });
  }
  static inline KernelLoader loader{&load, nullptr};
  static inline const bool once = [] {
    ListKernels<Call>::launch = &launch;
    Member::add_loader(loader);
    return true;
  }();
};

}  // namespace ccl::detail
