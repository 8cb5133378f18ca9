// CCL_DETERMINISTIC: reductions of libnccl add in one order, whatever the size and the buffers.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "support/environment.hpp"
#include "support/nccl_ranks.hpp"
#include "support/processes.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl::test;

namespace {

using Floats = std::vector<float>;

// The long suite has a million cases over 3 to 8 ranks.
#ifdef CCL_TEST_LONG
constexpr int cases = 100'000, control_cases = 2000, large_cases = 500;
#else
constexpr int cases = 40, control_cases = 40, large_cases = 5;
#endif
constexpr std::size_t longest_batch = 700'001;  // values, 2.7 MiB
constexpr std::size_t large_batch = 256 << 10;  // 1 MiB

/// Values whose sum depends on the order of adding.
Floats values(int rank, std::size_t count) {
  std::mt19937 random{unsigned(rank + 1)};
  std::uniform_real_distribution<float> digits{1, 2};
  std::uniform_int_distribution<int> power{-12, 12};
  Floats all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(std::ldexp(digits(random), power(random)) * (random() % 2 == 0 ? 1.F : -1.F));
  }
  return all;
}

/// Values of all ranks, and calls on parts of them.
struct Summed {
  static constexpr std::size_t longest = 70001;  // several chunks
  explicit Summed(int ranks, std::size_t count = longest) : all{ranks}, whole{count} {
    for (int r = 0; r < ranks; ++r) in.push_back(values(r, whole));
  }
  using Call = std::function<ncclResult_t(const float*, float*, std::size_t, ncclComm_t)>;

  /// Results of all ranks, of `count` values from `first` on. `shift` moves the buffers.
  std::vector<Floats> run(std::size_t first, std::size_t count, std::size_t shift,
                          const Call& call) const {
    std::vector<Floats> out(in.size(), Floats(count + shift));
    std::vector<Floats> send;
    for (const Floats& of_rank : in) {
      send.emplace_back(count + shift);
      std::copy_n(of_rank.begin() + long(first), count, send.back().begin() + long(shift));
    }
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      const auto at = std::size_t(r);
      return call(send[at].data() + shift, out[at].data() + shift, count, comm);
    }) == ncclSuccess);
    for (Floats& of_rank : out) of_rank.erase(of_rank.begin(), of_rank.begin() + long(shift));
    return out;
  }

  NcclRanks all;
  std::size_t whole;  // values of each rank
  std::vector<Floats> in;
};

/// Sum of element `i` at a rank of the tree of summation_order.md: its own value, then the sums of
/// its children, the lower one first. The ranks below it are less than `reach` away.
float tree_sum(const std::vector<Floats>& in, std::size_t i, int rank, int reach) {
  const int ranks = int(in.size());
  float sum = in[std::size_t(rank)][i];
  const int child = reach / 2;
  if (rank > 0 && child > 0) sum += tree_sum(in, i, rank - child, child);
  for (int above = child; above > 0; above /= 2) {
    if (rank + above >= ranks) continue;  // the one below it takes its place
    return sum + tree_sum(in, i, rank + above, above);
  }
  return sum;
}
float tree_sum(const std::vector<Floats>& in, std::size_t i) {
  return tree_sum(in, i, 0, int(std::bit_ceil(in.size())));
}

/// Sum of element `i` from the rank behind `last` on, around the ring, to `last`.
float ring_sum(const std::vector<Floats>& in, std::size_t i, int last) {
  const int ranks = int(in.size());
  float sum = in[std::size_t((last + 1) % ranks)][i];
  for (int r = 2; r <= ranks; ++r) sum = in[std::size_t((last + r) % ranks)][i] + sum;
  return sum;
}

Floats each(std::size_t count, const std::function<float(std::size_t)>& element) {
  Floats all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = element(i);
  return all;
}

bool same_bits(const Floats& whole, std::size_t first, const Floats& part) {
  return std::memcmp(whole.data() + first, part.data(), part.size() * sizeof(float)) == 0;
}

const Summed::Call all_reduce = [](const float* a, float* b, std::size_t n, ncclComm_t comm) {
  return ncclAllReduce(a, b, n, ncclFloat, ncclSum, comm, nullptr);
};
const Summed::Call average = [](const float* a, float* b, std::size_t n, ncclComm_t comm) {
  return ncclAllReduce(a, b, n, ncclFloat, ncclAvg, comm, nullptr);
};
const Summed::Call to_last = [](const float* a, float* b, std::size_t n, ncclComm_t comm) {
  int ranks = 0;
  CHECK(ncclCommCount(comm, &ranks) == ncclSuccess);
  return ncclReduce(a, b, n, ncclFloat, ncclSum, ranks - 1, comm, nullptr);
};

/// Number of values of a random part: sizes of every magnitude if all values are few, else batches
/// over 1 MiB.
std::size_t random_count(const Summed& sums, std::mt19937& random) {
  if (sums.whole > large_batch) {
    return large_batch + 1 + random() % (sums.whole - large_batch);
  }
  const std::size_t most = std::size_t{1} << (random() % 17);
  return 1 + random() % std::min(most, sums.whole);
}

/// Number of random parts whose bits differ from those of `whole`, the results of all values, on
/// any rank.
int differing_parts(const Summed& sums, const Floats& whole, const Summed::Call& call, int cases,
                    unsigned seed, bool only_last) {
  std::mt19937 random{seed};
  int differ = 0;
  for (int i = 0; i < cases; ++i) {
    const std::size_t count = random_count(sums, random);
    const std::size_t first = random() % (sums.whole - count + 1);
    const auto part = sums.run(first, count, random() % 8, call);
    bool same = true;
    for (std::size_t r = only_last ? part.size() - 1 : 0; r < part.size(); ++r) {
      same = same && same_bits(whole, first, part[r]);
    }
    differ += same ? 0 : 1;
  }
  return differ;
}

}  // namespace

TEST_CASE("with CCL_DETERMINISTIC, bits depend on no size, offset, split, run and rank") {
  const Environment one_order{"CCL_DETERMINISTIC", "1"};
#ifdef CCL_TEST_LONG
  const int ranks = GENERATE(3, 4, 5, 6, 7, 8);
#else
  const int ranks = GENERATE(3, 4, 5, 8);
#endif
  const Summed sums{ranks};
  // The orders of summation_order.md for CPU ranks of one host, by this test's own additions.
  const Floats tree = each(Summed::longest, [&](auto i) { return tree_sum(sums.in, i); });
  const Floats mean = each(Summed::longest, [&](auto i) { return tree[i] / float(ranks); });
  const Floats chain =
      each(Summed::longest, [&](auto i) { return ring_sum(sums.in, i, ranks - 1); });
  CHECK(differing_parts(sums, tree, all_reduce, cases, unsigned(ranks), false) == 0);
  CHECK(differing_parts(sums, mean, average, cases / 4, 7, false) == 0);
  CHECK(differing_parts(sums, chain, to_last, cases / 2, 8, true) == 0);
  CHECK(same_bits(sums.run(0, Summed::longest, 0, all_reduce)[0], 0, tree));
  const Summed again{ranks};  // another communicator
  CHECK(same_bits(sums.run(0, 5000, 0, all_reduce)[0], 0, again.run(0, 5000, 3, all_reduce)[1]));
}

TEST_CASE("with CCL_DETERMINISTIC, bits of batches over 1 MiB depend on nothing either") {
#ifdef CCL_TEST_LONG
  const int ranks = GENERATE(3, 4, 5, 6, 7, 8);
#else
  const int ranks = GENERATE(3, 8);
#endif
  const Environment one_order{"CCL_DETERMINISTIC", "1"};
  const Summed sums{ranks, longest_batch};
  const Floats tree = each(sums.whole, [&](auto i) { return tree_sum(sums.in, i); });
  const Floats chain = each(sums.whole, [&](auto i) { return ring_sum(sums.in, i, ranks - 1); });
  CHECK(differing_parts(sums, tree, all_reduce, large_cases, unsigned(ranks), false) == 0);
  CHECK(differing_parts(sums, chain, to_last, large_cases, 8, true) == 0);
}

TEST_CASE("without it, bits of batches over 1 MiB do") {
  const Summed sums{3, longest_batch};
  const Floats whole = sums.run(0, sums.whole, 0, all_reduce)[0];
  CHECK(differing_parts(sums, whole, all_reduce, 5, 3, false) > 0);
}

TEST_CASE("with CCL_DETERMINISTIC, a share's bits do not depend on its size") {
  const Environment one_order{"CCL_DETERMINISTIC", "1"};
  const int ranks = GENERATE(3, 8);
  const NcclRanks all{ranks};
  const auto shares = [&](std::size_t count) {
    const auto n = std::size_t(ranks);
    std::vector<Floats> in(n, Floats(count * n)), out(n, Floats(count));
    for (int r = 0; r < ranks; ++r) {
      for (int to = 0; to < ranks; ++to) {
        const auto part = values(r * ranks + to, count);
        std::ranges::copy(part, in[std::size_t(r)].begin() + long(count) * to);
      }
    }
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      return ncclReduceScatter(in[std::size_t(r)].data(), out[std::size_t(r)].data(), count,
                               ncclFloat, ncclSum, comm, nullptr);
    }) == ncclSuccess);
    return out;
  };
  std::vector<std::size_t> counts{1, 7, 1000, 4099, 20001};
  if (ranks == 3) counts.push_back(large_batch + 1);
  for (const std::size_t count : counts) {
    const auto part = shares(count);
    for (int to = 0; to < ranks; ++to) {
      std::vector<Floats> in;
      for (int r = 0; r < ranks; ++r) in.push_back(values(r * ranks + to, count));
      const Floats whole = each(count, [&](auto i) { return ring_sum(in, i, to); });
      CHECK(same_bits(whole, 0, part[std::size_t(to)]));
    }
  }
}

namespace {
/// Sum of element `i` over hosts of `per_host` ranks each, as in summation_order.md: each host has
/// a tree of its own, and its first rank adds the sums of the hosts below it in a tree of the
/// hosts.
float hosts_sum(const std::vector<Floats>& in, std::size_t i, int per_host, int host, int reach) {
  const int hosts = int(in.size()) / per_host;
  const std::vector<Floats> of_host(in.begin() + long(host) * per_host,
                                    in.begin() + long(host + 1) * per_host);
  float sum = tree_sum(of_host, i);
  const int child = reach / 2;
  if (host > 0 && child > 0) sum += hosts_sum(in, i, per_host, host - child, child);
  for (int above = child; above > 0; above /= 2) {
    if (host + above >= hosts) continue;
    return sum + hosts_sum(in, i, per_host, host + above, above);
  }
  return sum;
}

/// Number of random parts whose bits differ from the order of hosts, on this rank.
int differing_over_hosts(ncclComm_t comm, int rank, int ranks, int per_host) {
  constexpr std::size_t longest = 20001;
  std::vector<Floats> in;
  for (int r = 0; r < ranks; ++r) in.push_back(values(r, longest));
  const int reach = int(std::bit_ceil(unsigned(ranks / per_host)));
  const Floats whole = each(longest, [&](auto i) { return hosts_sum(in, i, per_host, 0, reach); });
  std::mt19937 random{9};
  int differ = 0;
  for (int i = 0; i < 20; ++i) {
    const std::size_t count = 1 + random() % (std::size_t{1} << random() % 15);
    const std::size_t first = random() % (longest - count + 1);
    Floats part(count);
    const auto done = ncclAllReduce(in[std::size_t(rank)].data() + first, part.data(), count,
                                    ncclFloat, ncclSum, comm, nullptr);
    differ += done == ncclSuccess && same_bits(whole, first, part) ? 0 : 1;
  }
  return differ;
}
}  // namespace

TEST_CASE("over several hosts, bits depend on no size either, but on the ranks of each host") {
  constexpr int ranks = 6;
  for (const int per_host : {2, 3}) {
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < ranks; ++rank) {
      pids.push_back(start_process([&] {
        const Environment one_order{
            {{"CCL_DETERMINISTIC", "1"}, {"CCL_HOSTID", "host" + std::to_string(rank / per_host)}}};
        ncclComm_t comm = nullptr;
        if (ncclCommInitRank(&comm, ranks, id, rank) != ncclSuccess) return 100;
        const int differ = differing_over_hosts(comm, rank, ranks, per_host);
        return ncclCommDestroy(comm) == ncclSuccess ? differ : 101;
      }));
    }
    INFO(per_host << " ranks of each host");
    CHECK(reap(pids, 60));
  }
}

TEST_CASE("without it, they do: the test above can tell") {
  const int ranks = GENERATE(3, 5, 8);
  const Summed sums{ranks};
  const Floats whole = sums.run(0, Summed::longest, 0, all_reduce)[0];
  CHECK(differing_parts(sums, whole, all_reduce, control_cases, unsigned(ranks), false) > 0);
}

TEST_CASE("a call can ask for one order") {
  const Summed sums{4};
  ncclConfigExt_t option{nullptr, {0x63636c, 1}, {1}};
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.ext = &option;
  const auto one_order = [&](const float* a, float* b, std::size_t n, ncclComm_t comm) {
    return ncclAllReduceConfig(a, b, n, ncclFloat, ncclSum, comm, nullptr, &config);
  };
  const Floats tree = each(Summed::longest, [&](auto i) { return tree_sum(sums.in, i); });
  CHECK(differing_parts(sums, tree, one_order, 20, 4, false) == 0);
}

TEST_CASE("what frameworks set for batch-invariant results leaves one order as it is") {
  const Environment one_order{{{"CCL_DETERMINISTIC", "1"},
                               {"NCCL_ALGO", "allreduce:tree"},
                               {"NCCL_PROTO", "Simple"},
                               {"NCCL_MAX_NCHANNELS", "1"}}};
  const Summed sums{5};
  const Floats tree = each(Summed::longest, [&](auto i) { return tree_sum(sums.in, i); });
  CHECK(differing_parts(sums, tree, all_reduce, 20, 4, false) == 0);
  // A list of ccl's own name counts: it leaves nothing.
  const Environment own{"CCL_ALGO", "allreduce:ring"};
  const NcclRanks others{2};
  const float in = 1;
  float out[2] = {};
  CHECK(others.group([&](int r, ncclComm_t comm) {
    return ncclAllReduce(&in, &out[r], 1, ncclFloat, ncclSum, comm, nullptr);
  }) != ncclSuccess);
  CHECK(last_error_has("CCL_ALGO"));
}

TEST_CASE("ranks that differ in CCL_DETERMINISTIC are told so") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  const auto child = ::fork();
  ncclResult_t made = ncclNumResults;
  ncclComm_t comm = nullptr;
  bool named = false;
  {
    const Environment setting{"CCL_DETERMINISTIC", child == 0 ? "1" : "0"};
    made = ncclCommInitRank(&comm, 2, id, child == 0 ? 1 : 0);
    named = std::string{ncclGetLastError(nullptr)}.find(
                "CCL_DETERMINISTIC is 0 on rank 0 and 1 on rank 1") != std::string::npos;
  }
  const int failed = (made != ncclInvalidUsage) + 2 * !named;
  if (child == 0) ::_exit(failed);
  int status = 1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(failed == 0);
}
