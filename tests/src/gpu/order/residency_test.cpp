// Launches of several communicators on one GPU end, because their blocks fit or they wait for each
// other in the order of calls.
#include "gpu/order/residency.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/order/order.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/gpu_comm.hpp"
#include "support/gpu_scheduler.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;
using detail::GpuOrder;
using detail::Residency;
using Comm = GpuComm;

namespace {

constexpr int multiprocessors = 132;

/// Number of seeds, of 200, with which all launches of `scene` end. The scene queues them.
int ended(int gpus, const std::function<void(GpuScheduler&, std::vector<std::unique_ptr<Comm>>&,
                                             std::mt19937&)>& scene) {
  int well = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random{seed};
    GpuScheduler scheduler{gpus, multiprocessors};
    std::vector<std::unique_ptr<Comm>> comms;
    scene(scheduler, comms, random);
    well += scheduler.run(seed);
  }
  return well;
}

}  // namespace

TEST_CASE("communicators that do not fit together end in the order of calls, and not without") {
  const auto scene = [](bool in_order) {
    return [in_order](GpuScheduler& gpus, auto& comms, std::mt19937&) {
      for (int c = 0; c < 2; ++c) {
        comms.push_back(std::make_unique<Comm>(gpus, c, 2, 128, in_order));
      }
      for (int rank = 0; rank < 2; ++rank) {
        for (auto& comm : comms) comm->call(rank, gpus.stream(rank));
      }
    };
  };
  CHECK(ended(2, scene(true)) == 200);
  CHECK(ended(2, scene(false)) < 200);
}

TEST_CASE("communicators that fit together end in any order of calls, with several calls each") {
  const auto scene = [](bool always_early) {
    return [always_early](GpuScheduler& gpus, auto& comms, std::mt19937&) {
      for (int c = 0; c < 2; ++c) comms.push_back(std::make_unique<Comm>(gpus, c, 2, 64, true));
      for (int rank = 0; rank < 2; ++rank) {
        for (int i = 0; i < 2; ++i) {
          const CUstream stream = gpus.stream(rank);
          for (int n = 0; n < 2; ++n) {
            comms[std::size_t(i ^ rank)]->call(rank, stream, 0, always_early);
          }
        }
      }
    };
  };
  CHECK(ended(2, scene(false)) == 200);
  CHECK(ended(2, scene(true)) < 200);  // the second call holds a place while the first waits
}

TEST_CASE("launches that were early while a communicator was alone let later ones end") {
  const auto scene = [](GpuScheduler& gpus, auto& comms, std::mt19937&) {
    comms.push_back(std::make_unique<Comm>(gpus, 0, 2, 32, true));
    std::vector<CUstream> streams;
    for (int rank = 0; rank < 2; ++rank) streams.push_back(gpus.stream(rank));
    for (int n = 0; n < 10; ++n) comms[0]->call(0, streams[0]);  // the other rank calls later
    for (int c = 1; c < 3; ++c) comms.push_back(std::make_unique<Comm>(gpus, c, 2, 32, true));
    for (int n = 0; n < 10; ++n) comms[0]->call(1, streams[1]);
    for (int rank = 0; rank < 2; ++rank) {
      for (int call = 0; call < 12; ++call) {
        const auto c = std::size_t(call % 3);
        comms[c]->call(rank, call % 4 == 0 ? streams[std::size_t(rank)] : gpus.stream(rank));
      }
    }
  };
  CHECK(ended(2, scene) == 200);
}

TEST_CASE("any number and size of communicators end, in the order of calls") {
  const auto scene = [](GpuScheduler& gpus, auto& comms, std::mt19937& random) {
    const int count = 2 + int(random() % 7);
    std::vector<int> blocks;
    for (int c = 0; c < count; ++c) {
      blocks.push_back(1 + int(random() % (random() % 2 == 0 ? 32 : multiprocessors)));
    }
    std::vector<std::vector<CUstream>> streams(3);
    for (int rank = 0; rank < 3; ++rank) {
      for (int s = 0; s < 3; ++s) streams[std::size_t(rank)].push_back(gpus.stream(rank));
    }
    for (int call = 0; call < 40; ++call) {
      // Some communicators are created in between.
      if (int(comms.size()) < count && (comms.empty() || random() % 3 == 0)) {
        const int c = int(comms.size());
        comms.push_back(std::make_unique<Comm>(gpus, c, 2 + c % 2, blocks[std::size_t(c)], true));
      }
      const auto c = random() % comms.size(), s = random() % 3;
      const int size = 1 + int(random() % unsigned(blocks[c]));
      for (int rank = 0; rank < 2 + int(c % 2); ++rank) {
        comms[c]->call(rank, streams[std::size_t(rank)][s], size);
      }
    }
  };
  CHECK(ended(3, scene) == 200);
}

TEST_CASE("four communicators of the default size end in different orders of calls") {
  const auto scene = [](GpuScheduler& gpus, auto& comms, std::mt19937& random) {
    for (int c = 0; c < 4; ++c) comms.push_back(std::make_unique<Comm>(gpus, c, 2, 32, false));
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<int> calls;
      for (int c = 0; c < 4; ++c) calls.insert(calls.end(), 6, c);
      std::shuffle(calls.begin(), calls.end(), random);
      std::vector<CUstream> streams;
      for (int c = 0; c < 4; ++c) streams.push_back(gpus.stream(rank));
      for (const int c : calls) {
        comms[std::size_t(c)]->call(rank, streams[std::size_t(c)]);
      }
    }
  };
  CHECK(ended(2, scene) == 200);
}

TEST_CASE("launches with clusters end beside those without, in different orders of calls") {
  const auto scene = [](std::vector<int> blocks, bool always) {
    return [blocks, always](GpuScheduler& gpus, auto& comms, std::mt19937& random) {
      gpus.always_clustered = always;
      for (const int of_one : blocks) {
        const int number = int(comms.size());
        comms.push_back(std::make_unique<Comm>(gpus, number, 2, of_one, false, 4));
        if (number != 2 || random() % 2 == 0) continue;
        for (int call = 0; call < 6; ++call) {  // before the others are created
          const int rank = call % 2;
          comms[std::size_t((call / 2 + rank) % 3)]->call(rank, gpus.stream(rank));
        }
      }
      for (int rank = 0; rank < 2; ++rank) {
        std::vector<std::pair<Comm*, CUstream>> calls;
        for (auto& comm : comms) calls.insert(calls.end(), 6, {comm.get(), gpus.stream(rank)});
        std::shuffle(calls.begin(), calls.end(), random);
        for (const auto& [comm, stream] : calls) comm->call(rank, stream);
      }
    };
  };
  CHECK(ended(2, scene({32, 32, 32, 30}, false)) == 200);  // the last have no whole clusters
  CHECK(ended(2, scene({64, 68}, false)) == 200);
  CHECK(ended(2, scene({64, 68}, true)) < 200);  // of 33 clusters 32 have a place
}

TEST_CASE("launches have clusters while all communicators leave room for them") {
  GpuScheduler gpus{1, multiprocessors};
  const CUstream stream = gpus.stream(0);
  const auto cluster = [&](Comm& comm, int blocks) {
    comm.call(0, stream, blocks);
    const int got = comm.order(0).share()->cluster_of(blocks);
    CHECK(GpuScheduler::of(stream).work.back()->kind == ScheduledWork::record);
    REQUIRE(gpus.run(1));
    return got;
  };
  Comm first{gpus, 0, 1, 32, true, 4};
  CHECK(cluster(first, 32) == 4);
  CHECK(cluster(first, 16) == 4);
  CHECK(cluster(first, 12) == 1);  // it is small
  CHECK(cluster(first, 30) == 1);  // 30 blocks are no whole clusters
  {
    Comm whole{gpus, 1, 1, 128, true, 4};
    CHECK(cluster(whole, 128) == 1);
    CHECK(cluster(whole, 32) == 1);
    CHECK(cluster(first, 32) == 1);
  }
  Comm second{gpus, 2, 1, 32, true, 4}, third{gpus, 3, 1, 32, true, 4};
  CHECK(cluster(first, 32) == 4);
  CHECK(cluster(third, 32) == 4);
  Comm none{gpus, 4, 1, 4, true, 1};
  CHECK(cluster(none, 4) == 1);
  CHECK(cluster(second, 32) == 4);
  Comm fourth{gpus, 5, 1, 32, true, 4};
  CHECK(cluster(second, 32) == 1);
}

TEST_CASE("the share of a communicator depends on the others of the GPU") {
  GpuScheduler gpus{2, multiprocessors};
  const CUstream stream = gpus.stream(0);
  const auto share = [&](Comm& comm) {
    comm.call(0, stream, 1);
    return comm.order(0).share()->blocks;
  };
  Comm first{gpus, 0, 1, 32, true};
  CHECK(share(first) == 64);  // one launch, and one behind it
  {
    Comm second{gpus, 1, 1, 32, true};
    CHECK(share(second) == 50);
    CHECK(share(first) == 50);
    Comm third{gpus, 2, 1, 32, true}, fourth{gpus, 3, 1, 32, true};
    CHECK(share(first) == 32);
    CHECK(share(fourth) == 32);
    Comm on_another{gpus, 4, 2, 32, true};  // of a rank on the other GPU, too
    on_another.call(1, gpus.stream(1));
    CHECK(on_another.order(1).share()->blocks == 64);
  }
  CHECK(share(first) == 64);
  REQUIRE(gpus.run(1));
  Comm large{gpus, 5, 1, 128, true};
  CHECK(share(large) == 128);
}

TEST_CASE("a communicator beside which no other like it fits may hold the whole GPU") {
  GpuScheduler gpus{1, multiprocessors};
  Comm only{gpus, 0, 1, 128, true};
  only.call(0, gpus.stream(0));
  CHECK(only.order(0).share()->blocks == detail::LaunchShare::whole_gpu().blocks);
  CHECK(gpus.run(1));
}

TEST_CASE("a communicator that is idle takes no share from others") {
  GpuScheduler gpus{1, multiprocessors};
  Comm idle{gpus, 0, 1, 32, true};
  idle.call(0, gpus.stream(0));  // while it is alone
  REQUIRE(gpus.run(1));
  Comm busy{gpus, 1, 1, 32, true};
  const CUstream stream = gpus.stream(0);
  for (int n = 0; n < 2; ++n) busy.call(0, stream);
  CHECK(busy.order(0).share()->blocks == 50);
  for (const auto& work : GpuScheduler::of(stream).work) {
    CHECK(work->kind != ScheduledWork::wait);
  }
}

TEST_CASE("no launch begins early beside other ranks of its communicator on the GPU") {
  GpuScheduler gpus{1, multiprocessors};
  auto gpu = detail::Gpu::open(0);
  REQUIRE(gpu);
  GpuOrder first{*gpu}, second{*gpu}, none{*gpu};
  REQUIRE(first.join({16, 2, 0, true}));
  REQUIRE(second.join({16, 2, 1, true}));
  const CUstream stream = gpus.stream(0);
  for (GpuOrder* order : {&first, &second}) {
    REQUIRE(gpus.launch(*order, 0, 0, 16, order == &first ? stream : gpus.stream(0)));
    CHECK(order->share()->blocks == 0);
  }
  CHECK(none.share() == nullptr);  // without a place
  CHECK(gpus.run(1));
}

TEST_CASE("ranks of one communicator on a GPU never wait for each other") {
  std::vector<std::unique_ptr<GpuOrder>> orders;
  const auto scene = [&orders](GpuScheduler& gpus, auto&, std::mt19937& random) {
    // Two communicators with two ranks each on one GPU, of more blocks than fit.
    orders.clear();
    for (int n = 0; n < 4; ++n) {
      auto gpu = detail::Gpu::open(0);
      REQUIRE(gpu);
      orders.push_back(std::make_unique<GpuOrder>(*gpu));
      REQUIRE(orders.back()->join({40, 2, n % 2, true}));
    }
    // Each rank has its thread: the calls of the ranks mix, and each rank has the same order.
    std::vector<int> next(2);
    while (next[0] + next[1] < 8) {
      const auto rank = next[0] < 4 && (next[1] == 4 || random() % 2 == 0) ? 0U : 1U;
      const int call = next[rank]++;
      REQUIRE(gpus.launch(*orders[std::size_t(call % 2 * 2) + rank], call % 2, call, 40,
                          gpus.stream(0)));
    }
  };
  // Each rank is a stream of GPU 0, so the same launch is complete when both are there.
  CHECK(ended(1, scene) == 200);
}

TEST_CASE("a launch that fails lets the launches of others go on") {
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 128, true}, second{gpus, 1, 1, 128, true};
  REQUIRE(first.order(0).before(gpus.stream(0), nullptr));
  first.order(0).give_up();
  std::thread{[&] { second.call(0, gpus.stream(0)); }}.join();
  CHECK(gpus.run(1));
}

TEST_CASE("launches of a level belong to the communicator that it is a level of") {
  GpuScheduler gpus{1, multiprocessors};
  Comm whole{gpus, 0, 1, 32, true}, level{gpus, 1, 1, 32, true};
  level.order(0).follow(whole.order(0));
  const CUstream stream = gpus.stream(0);
  REQUIRE(whole.order(0).before(stream, nullptr));
  level.call(0, stream);
  REQUIRE(whole.order(0).after(stream));
  CHECK(level.order(0).share() == whole.order(0).share());
  CHECK(whole.order(0).share()->blocks == 64);
  CHECK(whole.order(0).share()->held == 32);
  CHECK(gpus.run(1));
}

TEST_CASE("blocks without a place are counted while launches are in flight") {
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 128, false}, second{gpus, 1, 1, 64, false}, idle{gpus, 2, 1, 32, false};
  first.call(0, gpus.stream(0));
  first.waits(0, true);
  CHECK_FALSE(second.order(0).shortage());
  second.call(0, gpus.stream(0));
  const auto shortage = idle.order(0).shortage();
  REQUIRE(shortage);
  CHECK(shortage->communicators == 2);
  CHECK(shortage->blocks == 192);
  CHECK(shortage->multiprocessors == multiprocessors);
  first.waits(0, false);  // it goes on, so the other gets its place
  CHECK_FALSE(idle.order(0).shortage());
  second.waits(0, true);  // the first has ended: it was launched before
  CHECK_FALSE(idle.order(0).shortage());
  first.waits(0, true);  // some blocks of each have a place
  CHECK(idle.order(0).shortage());
  first.waits(0, false);
  first.program_waits(0);  // a kernel of the program waits, and no launch
  CHECK_FALSE(idle.order(0).shortage());
}

TEST_CASE("a launch of a copy or a signal holds nothing of the launches before it") {
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 128, false}, second{gpus, 1, 1, 64, false}, idle{gpus, 2, 1, 32, false};
  first.call(0, gpus.stream(0));
  GpuOrder& order = first.order(0);
  REQUIRE(order.before(gpus.stream(0), std::make_shared<int>()));
  CHECK(order.share()->held == 128);
  order.share()->take_alone(1);
  REQUIRE(order.after(gpus.stream(0)));
  second.call(0, gpus.stream(0));
  first.waits(0, true);
  CHECK_FALSE(idle.order(0).shortage());
  CHECK(order.share()->take(4));  // the next launch may begin early behind it
}

TEST_CASE("launches that fit beside those that wait lack no place, and levels count as the whole") {
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 64, false}, level{gpus, 1, 1, 64, false};
  level.order(0).follow(first.order(0));
  Comm small{gpus, 2, 1, 48, false}, large{gpus, 3, 1, 96, false};
  first.call(0, gpus.stream(0));
  small.call(0, gpus.stream(0));
  level.waits(0, true);
  CHECK_FALSE(small.order(0).shortage());
  large.call(0, gpus.stream(0));
  const auto shortage = level.order(0).shortage();
  REQUIRE(shortage);
  CHECK(shortage->communicators == 2);
  CHECK(shortage->blocks == 160);
}

TEST_CASE("launches in the order of calls have a place when their turn comes") {
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 128, true}, second{gpus, 1, 1, 64, true};
  for (Comm* comm : {&first, &second}) comm->call(0, gpus.stream(0));
  CHECK_FALSE(first.order(0).shortage());
  CHECK(gpus.run(1));
}

TEST_CASE("a forked child counts its own communicators") {
  GpuScheduler gpus{1, multiprocessors};
  const auto gpu = detail::Gpu::open(0);
  REQUIRE(gpu);
  const auto mine = Residency::of(**gpu);
  CHECK(Residency::of(**gpu) == mine);
  const pid_t child = ::fork();
  if (child == 0) std::_Exit(Residency::of(**gpu) == mine ? 1 : 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
