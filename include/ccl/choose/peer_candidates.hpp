#pragma once

// Forms of the algorithms over peer memory that ccl's lists of candidates have.

#include <ccl/algo/nvls.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/choose/candidate.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>

namespace ccl::detail {

/// Algorithm over peer memory with the kernels for these numbers of ranks alone.
template <class Algo, class Counts>
struct ForRanks : Algo {
  using RankCounts = Counts;
};
/// Algorithm whose GPUs have a single kernel for all numbers of ranks, alignments and wires. It
/// compiles in a fraction of the time, and suits candidates whose wires take most of the time.
template <class Algo>
struct InOneKernel : Algo {
  static constexpr bool one_kernel = true;
};

/// Numbers of ranks without those beyond `max_unrolled_ranks`. The candidates with words serve
/// these: a domain of several hosts needs them, and one host rarely has so many.
using FewRanks = RankCounts<2, 4, 8>;
/// Numbers of ranks beyond those that have kernels of their own.
struct ManyRanks {
  using Kernels = RankCounts<>;
  static constexpr int wide = max_view_ranks;
  static constexpr bool contains(int ranks) { return ranks > max_unrolled_ranks && ranks <= wide; }
};
using OneShotOfFew = ForRanks<OneShot, FewRanks>;
using TwoShotOfFew = ForRanks<TwoShot, FewRanks>;
/// TwoShot for more ranks than have kernels of their own. Hosts of one NVLink domain are not proven
/// to keep lines whole; among 72 GPUs of 18 hosts this has the least time from about 4 KiB on.
using TwoShotOfMany = ForRanks<TwoShot, ManyRanks>;

/// Nvls without the kernels that emulate multicast: `Auto` takes it where NVSwitches do that.
struct NvlsOfSwitches : Nvls {
  static constexpr bool by_switches_alone = true;
};

/// Only if CCL_NVLS_ENABLE is 1 and the program includes <ccl/nvls.cuh>. Not run on hardware.
using Switches = OnGpus<Candidate<NvlsOfSwitches, Simple>>;
using OneShotOfWords = OnGpus<ForTornLines<Candidate<InOneKernel<OneShot>, LL>>>;
using TwoShotOfWords = OnGpus<ForTornLines<Candidate<TwoShotOfMany, LL>>>;

// Restricted to the rank count at which it was measured; see `Sentinel`.
using TwoShotOfEight = ForRanks<TwoShot, ExactRankCounts<8>>;

}  // namespace ccl::detail
