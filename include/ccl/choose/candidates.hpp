#pragma once

#include <ccl/algo/bruck.hpp>
#include <ccl/algo/collnet_chain.hpp>
#include <ccl/algo/collnet_direct.hpp>
#include <ccl/algo/copy_engine.hpp>
#include <ccl/algo/direct.hpp>
#include <ccl/algo/doubling.hpp>
#include <ccl/algo/halving.hpp>
#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/nvls.hpp>
#include <ccl/algo/nvls_tree.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/one_tree.hpp>
#include <ccl/algo/ordered_chain.hpp>
#include <ccl/algo/ordered_tree.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/pat.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/choose/candidate.hpp>
#include <ccl/choose/peer_candidates.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/sentinel.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/types/operations.hpp>

namespace ccl {
namespace detail {

struct TreeInOneKernel : Tree {
  using Validated = TreeInOneKernel;
  using OnCpus = Tree;
  static constexpr bool one_kernel = true;
};
struct OneTreeInOneKernel : OneTree {
  using Validated = OneTreeInOneKernel;
  using OnCpus = OneTree;
  using OnGpus = TreeInOneKernel;  // the kernels of the list for any order
};

struct HeadsOfSwitches : NvlsHeads {
  static constexpr bool by_switches_alone = true;
};
/// NvlsTree over the kernels that the list has.
struct TreeOfSwitches : Hierarchical<With<HeadsOfSwitches, Simple>, TreeInOneKernel> {
  static constexpr const char* name = NvlsTree::name;
};
template <>
inline constexpr bool is_hierarchical<TreeOfSwitches> = true;
using SwitchesOfHosts = OnGpus<Candidate<TreeOfSwitches, Simple>>;

// Candidates for several hosts.
using RailsOfCpus = OnCpus<Candidate<Hierarchical<Ring, Ring>, Simple>>;
template <class Proto>
using RailsOfGpus =
    OnGpus<Candidate<Hierarchical<With<InOneKernel<OneShotOfFew>, LL128>, Ring>, Proto>>;
// CPU ranks only, because GPUs have OneShot and TwoShot.
using InOrderOnCpus = OnCpus<ForOrder<Candidate<OrderedTree, Simple>>>;
using SharesInOrderOnCpus = OnCpus<ForOrder<Candidate<OrderedChain, Simple>>>;
// Relays through the rank of the sender's host that is on the receiver's rail.
template <class Proto>
using RelaysOfGpus = OnGpus<Candidate<Hierarchical<With<Direct, Simple>, Pairwise>, Proto>>;

// Only with CCL_COLLNET_ENABLE=1. A NIC sends and receives the message once.
struct ChainInOneKernel : CollNetChain {
  using Validated = ChainInOneKernel;
  using OnCpus = CollNetChain;
  static constexpr bool one_kernel = true;
};
// Only if each rank has a NIC of its own, too. Programs that scatter by it name it themselves: its
// lanes for each reduction made such a program a third larger.
struct HeadsInOneKernel : CollNetDirect {
  using Validated = HeadsInOneKernel;
  using OnCpus = CollNetDirect;
  static constexpr bool one_kernel = true;
};

/// ccl's list for an operation. A candidate is added by one line.
template <class Op>
struct DefaultCandidates;
template <>
struct DefaultCandidates<AllReduce> {
  using List = Candidates<                     //
      Candidate<OneShotOfFew, LL128>,          //
      OneShotOfWords,                          //
      Candidate<TwoShotOfFew, LL128>,          //
      TwoShotOfWords,                          //
      Candidate<TwoShotOfEight, Sentinel>,     //
      Candidate<Direct, Simple>, Switches,     //
      OnCpus<Candidate<Doubling, Simple>>,     //
      OnGpus<Candidate<Ring, LL>>,             //
      OnGpus<Candidate<Ring, LL128>>,          //
      Candidate<Ring, Simple>,                 //
      OnGpus<Candidate<TreeInOneKernel, LL>>,  //
      Candidate<TreeInOneKernel, Simple>,      //
      InOrderOnCpus,                           //
      Candidate<ChainInOneKernel, Simple>,     //
      RailsOfCpus, RailsOfGpus<LL>, RailsOfGpus<Simple>, SwitchesOfHosts>;
};
template <>
struct DefaultCandidates<AllGather> {
  using List = Candidates<                      //
      Candidate<OneShotOfFew, LL128>,           //
      OneShotOfWords,                           //
      Candidate<Direct, Simple>, Switches,      //
      OnCpus<Candidate<Bruck, Simple>>,         //
      OnCpus<Candidate<Doubling, Simple>>,      //
      OnGpus<Candidate<Ring, LL>>,              //
      OnGpus<Candidate<Ring, LL128>>,           //
      Candidate<Ring, Simple>,                  //
      OnGpus<Candidate<WindowCopies, Simple>>,  //
      OnGpus<Candidate<Pat, LL>>,               //
      OnCpus<Candidate<Pat, Simple>>,           //
      Candidate<HeadsInOneKernel, Simple>,      //
      RailsOfCpus, RailsOfGpus<LL>, RailsOfGpus<Simple>>;
};
template <>
struct DefaultCandidates<ReduceScatter> {
  using List = Candidates<                  //
      Candidate<OneShotOfFew, LL128>,       //
      OneShotOfWords,                       //
      Candidate<Direct, Simple>, Switches,  //
      OnGpus<Candidate<Ring, LL>>,          //
      OnGpus<Candidate<Ring, LL128>>,       //
      Candidate<Ring, Simple>,              //
      OnCpus<Candidate<Halving, Simple>>,   //
      OnCpus<Candidate<Pat, Simple>>,       //
      SharesInOrderOnCpus,                  //
      RailsOfCpus, RailsOfGpus<LL>, RailsOfGpus<Simple>>;
};
template <>
struct DefaultCandidates<Broadcast> {
  using List = Candidates<                  //
      Candidate<OneShot, LL128>,            //
      OneShotOfWords,                       //
      Candidate<Direct, Simple>, Switches,  //
      Candidate<TwoShotOfFew, LL128>,       //
      OnGpus<Candidate<Ring, LL>>,          //
      OnGpus<Candidate<Ring, LL128>>,       //
      OnCpus<Candidate<Pat, Simple>>,       //
      Candidate<Ring, Simple>>;
};
template <>
struct DefaultCandidates<Reduce> {
  using List = Candidates<                       //
      Candidate<OneShotOfFew, LL128>,            //
      OneShotOfWords,                            //
      Candidate<TwoShotOfFew, LL128>, Switches,  //
      OnGpus<Candidate<Ring, LL>>,               //
      OnGpus<Candidate<Ring, LL128>>,            //
      OnCpus<Candidate<Pat, Simple>>,            //
      InOrderOnCpus,                             //
      Candidate<Ring, Simple>, RailsOfCpus>;
};
template <>
struct DefaultCandidates<AllToAll> {
  using List = Candidates<                      //
      Candidate<OneShotOfFew, LL128>,           //
      OneShotOfWords,                           //
      Candidate<Direct, Simple>,                //
      OnGpus<Candidate<Pairwise, LL>>,          //
      OnGpus<Candidate<Pairwise, LL128>>,       //
      Candidate<Pairwise, Simple>,              //
      OnGpus<Candidate<WindowCopies, Simple>>,  //
      OnCpus<Candidate<Hierarchical<Pairwise, Pairwise>, Simple>>, RelaysOfGpus<LL>,
      RelaysOfGpus<Simple>>;
};
/// List of an operation that only moves messages between pairs of ranks.
template <class Op>
struct DefaultCandidates {
  using List = Candidates<                 //
      Candidate<OneShot, LL128>,           //
      OneShotOfWords,                      //
      Candidate<Direct, Simple>,           //
      OnGpus<Candidate<Pairwise, LL>>,     //
      OnGpus<Candidate<Pairwise, LL128>>,  //
      Candidate<Pairwise, Simple>>;
};
/// ccl's list for an operation with one order of additions: one tree for all channels replaces two.
/// Functors that are not commutative have an order of their own.
template <class Op>
struct DeterministicCandidates : DefaultCandidates<Op> {};
template <>
struct DeterministicCandidates<AllReduce> {
  using List = Candidates<                        //
      Candidate<OneShotOfFew, LL128>,             //
      Candidate<TwoShotOfFew, LL128>,             //
      Candidate<Direct, Simple>,                  //
      OnGpus<Candidate<OneTreeInOneKernel, LL>>,  //
      Candidate<OneTreeInOneKernel, Simple>,      //
      InOrderOnCpus>;
};
/// Direct takes the long messages, which Ring adds in an order that depends on the size.
template <>
struct DeterministicCandidates<Reduce> {
  using List = Candidates<                //
      Candidate<OneShotOfFew, LL128>,     //
      OneShotOfWords,                     //
      Candidate<TwoShotOfFew, LL128>,     //
      OnGpus<Candidate<Direct, Simple>>,  //
      OnGpus<Candidate<Ring, LL>>,        //
      OnGpus<Candidate<Ring, LL128>>,     //
      OnCpus<Candidate<Pat, Simple>>,     //
      InOrderOnCpus,                      //
      Candidate<Ring, Simple>, RailsOfCpus>;
};

}  // namespace detail
}  // namespace ccl
