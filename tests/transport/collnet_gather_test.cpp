// AllGather and ReduceScatter by a network that reduces, in software.
#include <ccl/algo/collnet_direct.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective/all_gather.hpp>
#include <ccl/collective/reduce_scatter.hpp>
#include <ccl/detail/choose/auto_collective.hpp>
#include <ccl/hierarchical.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/collnet.hpp>

#include <fmt/format.h>

#include <string>
#include <type_traits>
#include <vector>

#include "comm/state.hpp"
#include "support/collnet_job.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using Gathers = Collective<AllGather, CollNetDirect, Simple, CollNetTransport>;
using Scatters = Collective<ReduceScatter, CollNetDirect, Simple, CollNetTransport>;

int given(int rank, Index i) {
  return int(i % 1000) * 8 + rank + 1;
}

/// Gathers `count` elements of each rank. Returns what is wrong.
template <class T, class Call>
Answer gather(const Communicator& comm, const Call& call, Index count, bool in_place) {
  const int ranks = comm.ranks();
  std::vector<T> in(std::size_t(count) + 1), out(std::size_t(count * ranks) + 1, T(-1));
  T* const send = in_place ? out.data() + comm.rank() * count : in.data();
  for (Index i = 0; i < count; ++i) send[i] = T(given(comm.rank(), i));
  CCL_CHECK(call(send, out.data(), count));
  for (Index i = 0; i < count * ranks; ++i) {
    const T want = T(given(int(i / count), i % count));
    if (out[std::size_t(i)] == want) continue;
    return fmt::format("gathered element {} of {} is {} on rank {}, not {}; ", i, count,
                       out[std::size_t(i)], comm.rank(), want);
  }
  return std::string{};
}

/// Reduces `count` elements for each rank. Returns what is wrong.
template <class T, class F, class Call>
Answer scatter(const Communicator& comm, const Call& call, F op, Index count, bool in_place) {
  const int ranks = comm.ranks();
  std::vector<T> in(std::size_t(count * ranks) + 1), out(std::size_t(count) + 1);
  for (Index i = 0; i < count * ranks; ++i) in[std::size_t(i)] = T(given(comm.rank(), i));
  T* const recv = in_place ? in.data() + comm.rank() * count : out.data();
  CCL_CHECK(call(in.data(), recv, count, op));
  for (Index i = 0; i < count; ++i) {
    const Index at = comm.rank() * count + i;
    double want = given(ranks - 1, at);
    if constexpr (!std::is_same_v<F, Max>) {
      for (int r = 0; r < ranks - 1; ++r) want += given(r, at);
    }
    if constexpr (std::is_same_v<F, Avg>) want /= ranks;
    if (double(recv[i]) == want) continue;
    return fmt::format("{} {} of {} is {} on rank {}, not {}; ", F::name, i, count, recv[i],
                       comm.rank(), want);
  }
  return std::string{};
}

/// Small slots, so that messages take many steps.
Plan plan_of(int channels) {
  Plan plan;
  plan.channels = channels;
  plan.slot_count = 4;
  plan.slot_bytes = 8192;
  return plan;
}

Answer sweep(const Communicator& comm, int channels) {
  CCL_TRY(const auto gathers, Gathers::create(comm, plan_of(channels)));
  CCL_TRY(const auto scatters, Scatters::create(comm, plan_of(channels)));
  std::string wrong;
  for (const Index count : {0, 1, 5, 1000, 20'001}) {
    for (const bool in_place : {false, true}) {
      CCL_TRY(const std::string gathered, gather<int>(comm, gathers, count, in_place));
      CCL_TRY(const std::string sums, scatter<int>(comm, scatters, Sum{}, count, in_place));
      wrong += gathered + sums;
    }
  }
  CCL_TRY(const std::string shorts, gather<short>(comm, gathers, 777, false));
  CCL_TRY(const std::string averages, scatter<double>(comm, scatters, Avg{}, 3001, false));
  CCL_TRY(const std::string maxima, scatter<float>(comm, scatters, Max{}, 3001, true));
  return wrong + shorts + averages + maxima;
}

/// Job whose hosts have a device for each rank.
CollNetJob job_of(int hosts, int of_host, std::string plug_in = CCL_TEST_SOFTWARE_COLLNET) {
  CollNetJob job{std::vector<int>(std::size_t(hosts), of_host), std::move(plug_in)};
  job.more = [of_host](int) {
    return Variables{{"SOFTWARE_COLLNET_DEVICES", std::to_string(of_host)}};
  };
  return job;
}
/// The same with further variables of one rank, or of all (-1).
CollNetJob job_with(CollNetJob job, Variables more, int of_rank = -1) {
  job.more = [before = job.more, more = std::move(more), of_rank](int rank) {
    Variables all = before(rank);
    if (of_rank < 0 || rank == of_rank) all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  return job;
}

void check_all(const std::vector<std::string>& said, const std::string& want = "") {
  for (const std::string& one : said) CHECK(one == want);
}
void check_contain(const std::vector<std::string>& said, const std::string& part) {
  for (std::size_t r = 0; r < said.size(); ++r) {
    INFO("rank " << r << ": " << said[r]);
    CHECK(said[r].find(part) != std::string::npos);
  }
}
Answer sweep_of_one_channel(const Communicator& comm) {
  return sweep(comm, 1);
}

/// Answers of the creations of both operations.
Answer create_both(const Communicator& comm) {
  const auto gathers = Gathers::create(comm);
  const auto scatters = Scatters::create(comm);
  return fmt::format("{} | {}", gathers ? "well" : gathers.error().message(),
                     scatters ? "well" : scatters.error().message());
}

using Two = AutoOf<Candidate<CollNetDirect, Simple>, Candidate<Ring, Simple>>;

/// Gathers and scatters by `Two`; names the compositions.
Answer choose(const Communicator& comm) {
  CCL_TRY(const auto gathers, (Collective<AllGather, Two>::create(comm)));
  CCL_TRY(const auto scatters, (Collective<ReduceScatter, Two>::create(comm)));
  CCL_TRY(const std::string gathered, gather<short>(comm, gathers, 100, false));
  CCL_TRY(const std::string sums, scatter<float>(comm, scatters, Sum{}, 100, false));
  CCL_TRY(const std::string shorts, scatter<short>(comm, scatters, Max{}, 100, false));
  return fmt::format("{}{}{}{} {}", gathered, sums, shorts, gathers.name(800), scatters.name(800));
}

}  // namespace

TEST_CASE("CollNetDirect: gathers and scatters on 2 to 8 hosts with a head for each rank") {
  check_all(job_of(2, 1).run(sweep_of_one_channel));
  check_all(job_of(2, 2).run([](const auto& c) { return sweep(c, 2); }));
  check_all(job_of(3, 3).run(sweep_of_one_channel));
  check_all(job_of(8, 1).run(sweep_of_one_channel));
}

TEST_CASE("CollNetDirect: gathers and scatters by rank where hosts hold ranks in any order") {
  auto job = job_of(2, 3);
  job.more = [](int rank) {  // ranks 0, 3 and 4 on one host
    return Variables{{"SOFTWARE_COLLNET_DEVICES", "3"},
                     {"CCL_HOSTID", rank == 0 || rank == 3 || rank == 4 ? "one" : "other"}};
  };
  check_all(job.run(sweep_of_one_channel));
}

TEST_CASE("CollNetDirect: a busy network, or one of few bytes, takes a part in several windows") {
  check_all(job_with(job_of(2, 2, CCL_TEST_COLLNET_V12), {{"SOFTWARE_COLLNET_MAX_BYTES", "1000"}})
                .run(sweep_of_one_channel));
  check_all(job_with(job_of(3, 1, CCL_TEST_COLLNET_V11),
                     {{"SOFTWARE_COLLNET_MAX_BYTES", "1000"}, {"COLLNET_BUSY", "2"}})
                .run(sweep_of_one_channel));
}

TEST_CASE("CollNetDirect: gathers and scatters by plug-ins of versions 8 and 9") {
  for (const char* const plug_in : {CCL_TEST_COLLNET_V8, CCL_TEST_COLLNET_V9}) {
    check_all(job_of(2, 2, plug_in).run(sweep_of_one_channel));
  }
}

TEST_CASE("Hierarchical: gathers and scatters along rails by the network") {
  using Rails = Hierarchical<Ring, CollNetDirect>;
  check_all(CollNetJob{{2, 2}}.run([](const Communicator& comm) -> Answer {
    CCL_TRY(const auto gathers, (Collective<AllGather, Rails, Simple>::create(comm)));
    CCL_TRY(const auto scatters, (Collective<ReduceScatter, Rails, Simple>::create(comm)));
    CCL_TRY(const std::string gathered, gather<int>(comm, gathers, 3000, false));
    CCL_TRY(const std::string sums, scatter<int>(comm, scatters, Sum{}, 3000, true));
    return gathered + sums;
  }));
}

TEST_CASE("CollNetDirect: what the network lacks for a gather is named on all ranks") {
  const auto old = job_of(2, 1, CCL_TEST_COLLNET_V10).run(create_both);
  check_contain(old,
                "not_supported: all_gather/CollNetDirect/Simple/collnet needs iallgather of the "
                "network (the CollNet plug-in Ten (");
  check_contain(old, "needs ireducescatter of the network");
  const auto few = CollNetJob{{2, 2}}.run(create_both);
  check_contain(few,
                "not_supported: all_gather/CollNetDirect/Simple/collnet wants a head for each rank "
                "(a host has 1, and that of rank 0 has 2 ranks)");
  const auto refused =
      job_with(job_of(2, 1, CCL_TEST_COLLNET_V12), {{"COLLNET_REFUSES", "7"}}, 1)
          .run([](const Communicator& comm) -> Answer {
            CCL_TRY(const auto scatters, Scatters::create(comm));
            CCL_TRY(const std::string sums, scatter<int>(comm, scatters, Sum{}, 10, false));
            std::vector<float> in(20), out(10);
            const auto none = scatters(in.data(), out.data(), 10, Sum{});
            return sums + (none ? "no error" : none.error().message());
          });
  check_contain(refused, "makes no sums of float)");
}

TEST_CASE("CollNetDirect: an operation that fails ends the gather on all ranks") {
  for (const std::string function : {"iallgather", "ireducescatter"}) {
    const auto said =
        job_with(job_of(2, 2, CCL_TEST_COLLNET_V12), {{"COLLNET_FAULT", function + ":5:3"}}, 3)
            .run(sweep_of_one_channel, false);
    check_contain(said, "the CollNet plug-in Faulty (" CCL_TEST_COLLNET_V12
                        ", version 12) failed in " +
                            function + " with 3 (internal error)");
    check_contain(said, "rank 3 on ");
  }
}

TEST_CASE("Auto gathers and scatters by the network, or without it where it has no such function") {
  const std::string network =
      "all_gather/CollNetDirect/Simple/any reduce_scatter/CollNetDirect/Simple/any";
  check_all(job_of(8, 1).run(choose), network);
  const std::string wires = "all_gather/Ring/Simple/any reduce_scatter/Ring/Simple/any";
  const Variables quiet{{"CCL_DEBUG", "NONE"}};
  check_all(job_with(job_of(8, 1, CCL_TEST_COLLNET_V10), quiet).run(choose), wires);
  check_all(job_with(CollNetJob{{2, 2, 2, 2}}, quiet).run(choose), wires);
}
