#include <ccl/any_collective.hpp>
#include <ccl/ccl.hpp>

#include <fmt/format.h>

#include <string>
#include <vector>

#include "support/ranks.hpp"

// Choices of `Auto` on CPU ranks of several hosts, as measured by
// benchmarks/network/across_hosts.cpp.
using namespace ccl;
using namespace ccl::test;

namespace {

auto hosts(std::string names) {
  return [names](int r) { on_host(std::string(1, names[std::size_t(r)])); };
}

/// The algorithms for small and large messages.
template <class Op>
Result<std::string> choice(const Communicator& comm) {
  CCL_TRY(const auto chosen, Collective<Op>::create(comm));
  const auto algo = [&](Index bytes) {
    const std::string name = chosen.plan(bytes).composition;
    return name.substr(0, name.find('/'));
  };
  return fmt::format("{} {} {}; ", algo(64), algo(4096), algo(64 << 20));
}

/// Returns the choices for all-reduce, all-gather, reduce-scatter, broadcast, reduce and
/// all-to-all.
Answer choices(const Communicator& comm) {
  CCL_TRY(std::string all, choice<AllReduce>(comm));
  CCL_TRY(const std::string all_gather, choice<AllGather>(comm));
  CCL_TRY(const std::string reduce_scatter, choice<ReduceScatter>(comm));
  CCL_TRY(const std::string broadcast, choice<Broadcast>(comm));
  CCL_TRY(const std::string reduce, choice<Reduce>(comm));
  CCL_TRY(const std::string all_to_all, choice<AllToAll>(comm));
  return all + all_gather + reduce_scatter + broadcast + reduce + all_to_all;
}

}  // namespace

TEST_CASE("choices: among hosts of a rank each, few hops for small messages") {
  for (const std::string& said : run(4, hosts("ABCD"), choices)) {
    CHECK(said ==
          "Doubling Doubling Ring; Bruck Bruck Ring; Halving Halving Ring; Pat Pat Ring; Pat Pat "
          "Ring; "
          "Pairwise Pairwise Pairwise; ");
  }
}

TEST_CASE("choices: between hosts of some ranks, levels only where they save more than they cost") {
  const std::string rails = "Hierarchical-Ring-Ring", pairs = "Hierarchical-Pairwise-Pairwise";
  for (const std::string& said : run(4, hosts("AABB"), choices)) {
    CHECK(said ==
          fmt::format("Doubling Tree {0}; Doubling Doubling Doubling; Halving Halving Halving; "
                      "Ring Ring Ring; Ring Ring {0}; {1} {1} Pairwise; ",
                      rails, pairs));
  }
}

TEST_CASE(
    "choices: among more hosts of more ranks, halves and a ring in which hosts stand together") {
  for (const std::string& said : run(8, hosts("AABBCCDD"), choices)) {
    const std::string reduce = "Ring Ring Hierarchical-Ring-Ring; ";
    const auto at = said.find("; Halving Halving Halving; Ring Ring Ring; " + reduce);
    REQUIRE(at != std::string::npos);
    CHECK(said.find("Hierarchical-Ring") == said.find(reduce) + 10);  // nowhere else
    CHECK(said.rfind("Hierarchical-Ring") == said.find(reduce) + 10);
  }
}

TEST_CASE("choices: what one rank's settings leave out of a list, no rank takes") {
  const auto narrowed = [](const Communicator& comm) -> Answer {
    if (comm.rank() == 1) ::setenv("CCL_ALGO", "Ring", 1);
    using Sums =
        AnyCollective<AllReduce, Candidates<Candidate<Ring, Simple>, Candidate<Doubling, Simple>>,
                      Types<int>, Reductions<Sum>>;
    CCL_TRY(const auto sums, Sums::create(comm));
    int x = 1;
    CCL_CHECK(sums(&x, &x, 1, DataType::int32, "sum"));
    const auto other = sums(&x, &x, 1, DataType::int32, "sum", {}, "Doubling");
    return fmt::format("{}; {}", x, other ? "taken" : other.error().what);
  };
  for (const std::string& said : run(2, hosts("AA"), narrowed)) {
    CHECK(said.find("2; all_reduce may not run Doubling (CCL_ALGO or CCL_PROTO exclude it") == 0);
  }
}

TEST_CASE("choices: in a group nothing that runs on levels is taken") {
  const auto grouped = [](const Communicator& comm) -> Answer {
    const Index each = 3, large = 4 << 20;
    CCL_TRY(const auto all_to_all, Collective<AllToAll>::create(comm));
    CCL_TRY(const auto all_reduce, Collective<AllReduce>::create(comm));
    std::vector<int> in(each * comm.ranks(), comm.rank()), out(in.size(), -1);
    std::vector<int> sum(large, 1);
    CCL_CHECK(group(Stream{}, all_to_all.bind(in.data(), out.data(), each),
                    all_reduce.bind(sum.data(), sum.data(), large)));
    for (Index i = 0; i < Index(out.size()); ++i) {
      if (out[i] != i / each) return fmt::format("all_to_all: {} is {}", i, out[i]);
    }
    for (const int n : sum) {
      if (n != comm.ranks()) return fmt::format("all_reduce: {}", n);
    }
    return all_to_all.plan(64).composition + all_reduce.plan(large * 4).composition;
  };
  for (const std::string& said : run(4, hosts("AABB"), grouped)) {
    CHECK(said == "Hierarchical-Pairwise-Pairwise/SimpleHierarchical-Ring-Ring/Simple");
  }
}

TEST_CASE("choices: no all-to-all by way of other ranks where the setting says so") {
  const auto without = [](const Communicator& comm) -> Answer {
    ::setenv("CCL_PXN_DISABLE", "1", 1);
    CCL_TRY(const std::string all_to_all, choice<AllToAll>(comm));
    CCL_TRY(const auto chosen, Collective<AllToAll>::create(comm));
    const bool reported = chosen.plan(64).why.find("Hierarchical") != std::string::npos;
    CCL_TRY(const auto named,
            (Collective<AllToAll, Hierarchical<Pairwise, Pairwise>, Simple>::create(comm)));
    return all_to_all + (reported ? "reported; " : "silent; ") + named.name();
  };
  for (const std::string& said : run(4, hosts("AABB"), without)) {
    CHECK(said.find("Pairwise Pairwise Pairwise; reported; all_to_all/Hierarchical") == 0);
  }
}
