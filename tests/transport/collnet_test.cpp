#include <ccl/algo/collnet_chain.hpp>
#include <ccl/algo/collnet_direct.hpp>
#include <ccl/algo/pat.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/hierarchical.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/collnet.hpp>

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/state.hpp"
#include "support/collnet_job.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

template <class Algo>
using Sums = Collective<AllReduce, Algo, Simple, CollNetTransport>;

/// Small numbers, so that sums and products are exact in all types.
template <class T>
T given(int rank, Index i) {
  return T(float((i * 7 + rank) % 3 + 1));
}

/// Compares the results of one reduction with those of a single process.
template <class F, class T, class Call>
Result<std::string> check(const Communicator& comm, const Call& call, F op, Index count,
                          bool in_place, double scale = 1) {
  const auto n = std::size_t(count);
  std::vector<T> in(n), out(n);
  for (Index i = 0; i < count; ++i) in[std::size_t(i)] = given<T>(comm.rank(), i);
  auto& to = in_place ? in : out;
  CCL_CHECK(call(in.data(), to.data(), count, op));
  for (Index i = 0; i < count; ++i) {
    double want = double(float(given<T>(0, i))) * (std::is_same_v<F, PreMulSum> ? scale : 1);
    for (int r = 1; r < comm.ranks(); ++r) {
      const double next = double(float(given<T>(r, i)));
      if constexpr (std::is_same_v<F, Prod>) {
        want *= next;
      } else if constexpr (std::is_same_v<F, Min>) {
        want = std::min(want, next);
      } else if constexpr (std::is_same_v<F, Max>) {
        want = std::max(want, next);
      } else {
        want += next * (std::is_same_v<F, PreMulSum> ? scale : 1);
      }
    }
    if constexpr (std::is_same_v<F, Avg>) want /= comm.ranks();
    if constexpr (std::is_integral_v<T>) want = double(T(std::int64_t(want)));
    const double got = double(float(to[std::size_t(i)]));
    if (std::abs(got - want) > std::abs(want) / 64) {
      return fmt::format("{} of {} elements is {} at {} on rank {}, not {}; ", F::name, count, got,
                         i, comm.rank(), want);
    }
  }
  return std::string{};
}

template <class Algo>
Answer sweep(const Communicator& comm, const Plan& plan) {
  CCL_TRY(const auto call, Sums<Algo>::create(comm, plan));
  std::string wrong;
  for (const Index count : {0, 1, 5, 1000, 70'001}) {
    for (const bool in_place : {false, true}) {
      CCL_TRY(const std::string one, (check<Sum, int>(comm, call, Sum{}, count, in_place)));
      wrong += one;
    }
  }
  const auto add = [&]<class F, class T>(F op, TypeTag<T>, double scale = 1) -> Result<void> {
    CCL_TRY(const std::string one, (check<F, T>(comm, call, op, 3001, false, scale)));
    wrong += one;
    return {};
  };
  CCL_CHECK(add(Avg{}, TypeTag<float>{}));
  CCL_CHECK(add(Avg{}, TypeTag<float16>{}));
  CCL_CHECK(add(Avg{}, TypeTag<std::int32_t>{}));
  CCL_CHECK(add(Sum{}, TypeTag<bfloat16>{}));
  CCL_CHECK(add(Min{}, TypeTag<std::int64_t>{}));
  CCL_CHECK(add(Max{}, TypeTag<double>{}));
  CCL_CHECK(add(Prod{}, TypeTag<std::uint8_t>{}));
  CCL_CHECK(add(PreMulSum{2.0}, TypeTag<float>{}, 2.0));
  return wrong;
}

/// Small slots, so that messages take many steps.
Plan plan_of(int channels) {
  Plan plan;
  plan.channels = channels;
  plan.slot_count = 4;
  plan.slot_bytes = 8192;
  return plan;
}

void check_all(const std::vector<std::string>& said, const std::string& want = "") {
  for (const std::string& one : said) CHECK(one == want);
}

}  // namespace

TEST_CASE("CollNetChain: all-reduce on 2 to 8 hosts by a network that reduces in software") {
  check_all(
      CollNetJob{{1, 1}}.run([](const auto& c) { return sweep<CollNetChain>(c, plan_of(1)); }));
  check_all(
      CollNetJob{{2, 3, 1}}.run([](const auto& c) { return sweep<CollNetChain>(c, plan_of(2)); }));
  check_all(CollNetJob{std::vector<int>(8, 1)}.run(
      [](const auto& c) { return sweep<CollNetChain>(c, plan_of(1)); }));
}

TEST_CASE("CollNetChain: several heads of a host share the channels") {
  CollNetJob job{{3, 3}};
  job.more = [](int) { return Variables{{"SOFTWARE_COLLNET_DEVICES", "2"}}; };
  const auto said = job.run([](const Communicator& comm) -> Answer {
    CCL_TRY(const std::string wrong, sweep<CollNetChain>(comm, plan_of(4)));
    const Word steps = detail::Access::state(comm)->proxy.counters().steps;
    return wrong + (steps == 0 ? "no steps" : steps > 50 ? "many steps" : "few steps");
  });
  for (int r = 0; r < 6; ++r) {
    CHECK(said[std::size_t(r)] == (r % 3 == 2 ? "no steps" : "many steps"));
  }
}

TEST_CASE("CollNetDirect: all-reduce on hosts with one head and with several") {
  const auto job = [](std::vector<int> hosts, int devices) {
    CollNetJob job{std::move(hosts)};
    job.more = [devices](int) {
      return Variables{{"SOFTWARE_COLLNET_DEVICES", std::to_string(devices)}};
    };
    return job;
  };
  const auto run = [](int channels) {
    return [channels](const Communicator& c) { return sweep<CollNetDirect>(c, plan_of(channels)); };
  };
  check_all(job({1, 1, 1}, 1).run(run(1)));
  check_all(job({3, 2}, 1).run(run(1)));
  check_all(job({2, 3, 2}, 2).run(run(2)));
  for (const std::string& one : job({9, 1}, 1).run(run(1))) {
    CHECK(one.find("at most 8 ranks, and a host has 9); use CollNetChain") != std::string::npos);
  }
}

TEST_CASE("Hierarchical: rails whose network reduces") {
  using Rails = Hierarchical<Pat, CollNetChain>;
  check_all(CollNetJob{{2, 2}}.run([](const Communicator& comm) -> Answer {
    CCL_TRY(const auto call, (Collective<AllReduce, Rails, Simple>::create(comm)));
    CCL_TRY(const std::string sums, (check<Sum, int>(comm, call, Sum{}, 7000, false)));
    CCL_TRY(const std::string averages, (check<Avg, float>(comm, call, Avg{}, 100, true)));
    return sums + averages;
  }));
}

TEST_CASE("CollNetChain: its default plan, and calls of many sizes over one network") {
  const auto said = CollNetJob{{2, 2}}.run([](const Communicator& comm) -> Answer {
    CCL_TRY(const auto call, (Collective<AllReduce, CollNetChain, Simple>::create(comm)));
    std::string wrong;
    for (Index count = 1; count <= 1 << 20; count *= 8) {
      CCL_TRY(const std::string one, (check<Sum, float>(comm, call, Sum{}, count, true)));
      wrong += one;
    }
    return wrong + call.name();
  });
  check_all(said, "all_reduce/CollNetChain/Simple/any");
}

TEST_CASE("CollNetChain: plug-ins of versions 8 to 11") {
  for (const char* const plug_in :
       {CCL_TEST_COLLNET_V8, CCL_TEST_COLLNET_V9, CCL_TEST_COLLNET_V10, CCL_TEST_COLLNET_V11}) {
    CollNetJob job{{2, 1}};
    job.plug_in = plug_in;
    check_all(job.run([](const auto& c) { return sweep<CollNetChain>(c, plan_of(1)); }));
  }
}

TEST_CASE("CollNetChain: a network that takes no operation for a while, or few bytes at once") {
  CollNetJob job{{1, 2}};
  job.plug_in = CCL_TEST_COLLNET_V12;
  job.more = [](int rank) {
    return Variables{{"COLLNET_BUSY", std::to_string(rank)},
                     {"SOFTWARE_COLLNET_MAX_BYTES", "1000"}};
  };
  check_all(job.run([](const auto& c) { return sweep<CollNetChain>(c, plan_of(1)); }));
}
