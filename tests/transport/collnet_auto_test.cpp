// `Auto` with a network that reduces, and without it where it cannot be had.
#include <ccl/auto.hpp>
#include <ccl/transport/collnet.hpp>

#include <fmt/format.h>

#include <string>
#include <type_traits>
#include <vector>

#include "support/collnet_job.hpp"
#include <dlfcn.h>

using namespace ccl;
using namespace ccl::test;

namespace {

using Two = AutoOf<Candidate<CollNetChain, Simple>, Candidate<Ring, Simple>>;

struct Larger {
  int operator()(int a, int b) const { return a < b ? b : a; }
};

/// Returns the number of operations that this process's plug-in has begun.
int operations() {
  void* const library = ::dlopen(CCL_TEST_COLLNET_V12, RTLD_NOW | RTLD_NOLOAD);
  void* const count =
      library == nullptr ? nullptr : ::dlsym(library, "ccl_test_collnet_operations");
  return count == nullptr ? 0 : reinterpret_cast<int (*)()>(count)();
}

/// Reduces, and returns "network" or "wires" by what has carried the data, or what is wrong.
template <class T, class F, class Call>
Result<std::string> carried(const Communicator& comm, const Call& call, F op) {
  const int before = operations();
  std::vector<T> data(100, T(comm.rank() + 1));
  CCL_CHECK(call(data.data(), data.data(), 100, op));
  const int ranks = comm.ranks();
  const int want = std::is_same_v<F, Sum> ? ranks * (ranks + 1) / 2 : ranks;
  for (const T value : data) {
    if (value != T(want)) return std::string{"wrong"};
  }
  return std::string{operations() > before ? "network" : "wires"};
}

CollNetJob job_of(std::vector<int> hosts, Variables of_rank_1 = {}) {
  CollNetJob job{std::move(hosts)};
  job.plug_in = CCL_TEST_COLLNET_V12;
  job.more = [of_rank_1 = std::move(of_rank_1)](int r) { return r == 1 ? of_rank_1 : Variables{}; };
  return job;
}

/// All of what one job of `Two` carries, in order.
Answer carry_all(const Communicator& comm) {
  CCL_TRY(const auto call, (Collective<AllReduce, Two>::create(comm)));
  CCL_TRY(std::string all, carried<int>(comm, call, Sum{}));
  CCL_TRY(const std::string floats, carried<float>(comm, call, Sum{}));
  CCL_TRY(const std::string shorts, carried<short>(comm, call, Sum{}));
  CCL_TRY(const std::string functors, carried<int>(comm, call, Larger{}));
  return fmt::format("{} {} {} {}", all, floats, shorts, functors);
}

/// Gathers by all that `Auto` has over the network alone, in the default plan.
Answer gather_by_network(const Communicator& comm) {
  CCL_TRY(const auto call, (Collective<AllGather, Auto, Auto, CollNetTransport>::create(comm)));
  for (Index count = 1; count <= 1 << 18; count *= 8) {
    const auto n = std::size_t(count), ranks = std::size_t(comm.ranks());
    std::vector<int> in(n), out(n * ranks, -1);
    for (std::size_t i = 0; i < n; ++i) in[i] = int(i % 1000) * 8 + comm.rank();
    CCL_CHECK(call(in.data(), out.data(), count));
    for (std::size_t i = 0; i < n * ranks; ++i) {
      if (out[i] != int(i % n % 1000) * 8 + int(i / n)) return fmt::format("{} is wrong", i);
    }
  }
  return fmt::format("{} of {}", call.name(100), call.compositions().size());
}
/// Two hosts of two ranks, each with a NIC of its own.
CollNetJob job_of_heads() {
  CollNetJob job{{2, 2}};
  job.more = [](int) { return Variables{{"SOFTWARE_COLLNET_DEVICES", "2"}}; };
  return job;
}

void check_all(const std::vector<std::string>& said, const std::string& want) {
  for (const std::string& one : said) CHECK(one == want);
}

}  // namespace

TEST_CASE("Auto takes a network that reduces for what that reduces") {
  check_all(job_of({1, 1, 1, 1}).run(carry_all), "network network wires wires");
  // One rank's network refuses float: all ranks take the ring.
  check_all(job_of({1, 1, 1, 1}, {{"COLLNET_REFUSES", "7"}}).run(carry_all),
            "network wires wires wires");
}

TEST_CASE("Auto goes without a network that one rank lacks, that fails or that is off") {
  const std::string want = "wires wires wires wires";
  check_all(
      job_of({1, 1, 1, 1}, {{"CCL_NET_PLUGIN", "none"}, {"CCL_DEBUG", "NONE"}}).run(carry_all),
      want);
  check_all(
      job_of({1, 1, 1, 1}, {{"COLLNET_FAULT", "regMr:0:3"}, {"CCL_DEBUG", "NONE"}}).run(carry_all),
      want);
  check_all(job_of({1, 1, 1, 1}, {{"CCL_COLLNET_ENABLE", "0"}}).run(carry_all), want);
}

TEST_CASE("Auto over CollNetTransport has the algorithms of that network alone") {
  const auto said = job_of({2, 2}).run([](const Communicator& comm) -> Answer {
    CCL_TRY(const auto call, (Collective<AllReduce, Auto, Auto, CollNetTransport>::create(comm)));
    CCL_TRY(const std::string one, carried<float>(comm, call, Sum{}));
    return fmt::format("{} of {}", call.name(100), call.compositions().size());
  });
  check_all(said, "all_reduce/CollNetChain/Simple/collnet of 1");
  check_all(job_of_heads().run(gather_by_network), "all_gather/CollNetDirect/Simple/collnet of 1");
  const auto alone = job_of({2}).run([](const Communicator& comm) -> Answer {
    const auto call = Collective<AllReduce, Auto, Auto, CollNetTransport>::create(comm);
    return call ? "no error" : call.error().message();
  });
  for (const std::string& one : alone) {
    CHECK(one.find("CollNet reduces between hosts (there are 1") != std::string::npos);
  }
}

TEST_CASE("Auto states a network that reduces among its candidates") {
  const auto said = job_of({1, 1, 1, 1}).run([](const Communicator& comm) -> Answer {
    CCL_TRY(const auto call, (Collective<AllReduce, Two>::create(comm)));
    return call.plan(1 << 20).text();
  });
  for (const std::string& one : said) {
    CHECK(one.starts_with("CollNetChain/Simple: "));
    CHECK(one.find("for 2 hops") != std::string::npos);
    CHECK(one.find("1 times the message") != std::string::npos);
  }
}
