// Ranks as processes on hosts of their own. Over TCP too, a pair is connected by the first call
// that has a message for it.
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/any_of.hpp>

#include <fmt/format.h>

#include <atomic>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using Over = AnyOf<ShmTransport, SocketTransport>;
using Pairs = Collective<SendRecv, Pairwise, Simple, Over>;
using ToAll = Collective<AllToAll, Pairwise, Simple, Over>;

std::size_t descriptors() {
  return Holdings::of_this_process().files;
}

Answer swap(const Pairs& pairs, int me, int peer) {
  int got = -1;
  CCL_CHECK(pairs(&me, 1, peer, &got, 1, peer));
  if (got != peer) return fail(Errc::internal, "wrong message");
  return "";
}

}  // namespace

TEST_CASE("creating Pairwise opens no connection, and a pair's first message opens that pair's") {
  constexpr int ranks = 10;
  Shared<std::atomic<int>> made, looked, counted;
  const auto said = run(
      ranks, [](int r) { on_host(fmt::format("host{}", r / 2)); },
      [&](const Communicator& comm) -> Answer {
        const int me = comm.rank();
        ++*made;  // callers of the creation of the communicator may come until all have theirs
        if (!wait_until([&] { return *made == ranks; }, 60)) return "alone";
        const std::size_t before = descriptors();
        CCL_TRY(const auto pairs, Pairs::create(comm));
        CCL_TRY(const auto to_all, ToAll::create(comm));
        const std::size_t created = descriptors();
        ++*looked;  // only then may others knock
        if (!wait_until([&] { return *looked == ranks; }, 60)) return "alone";
        if (created > before) return "opened at create";
        // Hosts of two ranks, the first with the second, the third with the fourth.
        const int host = me / 2, far = host % 2 == 1 ? me - 2 : host == 4 ? me : me + 2;
        CCL_CHECK(swap(pairs, me, me ^ 1));
        if (far != me) CCL_CHECK(swap(pairs, me, far));
        // Two sockets of data, one for messages of the bootstrap each way, a gate, at most.
        const std::size_t after_swaps = descriptors();
        if (after_swaps > before + 12) {
          return fmt::format("{} more after two swaps", after_swaps - before);
        }
        ++*counted;  // only then may others knock
        if (!wait_until([&] { return *counted == ranks; }, 60)) return "alone";
        std::vector<int> in(ranks, me), out(ranks, -1);
        for (int round = 0; round < 3; ++round) CCL_CHECK(to_all(in.data(), out.data(), 1));
        for (int p = 0; p < ranks; ++p) {
          if (out[std::size_t(p)] != p) return "wrong run";
        }
        return "well";
      });
  for (const auto& text : said) CHECK(text == "well");
}

TEST_CASE("a setting of one rank connects all pairs at create, on all ranks") {
  const auto said = run(
      4,
      [](int r) {
        on_host(fmt::format("host{}", r));
        if (r == 2) ::setenv("NCCL_RUNTIME_CONNECT", "0", 1);
      },
      [](const Communicator& comm) -> Answer {
        const std::size_t before = descriptors();
        CCL_TRY(const auto to_all, ToAll::create(comm));
        // Two connections of data with each of three.
        if (descriptors() < before + 6) return "not connected";
        std::vector<int> in(4, comm.rank()), out(4, -1);
        CCL_CHECK(to_all(in.data(), out.data(), 1));
        return out == std::vector<int>{0, 1, 2, 3} ? "well" : "wrong runs";
      });
  for (const auto& text : said) CHECK(text == "well");
}

TEST_CASE("a setting says how many channels pairs have over a network, and only there") {
  struct Case {
    const char *value, *most;
    int hosts, channels;
  };
  for (const Case& c :
       {Case{"3", "", 4, 3}, {"3", "", 2, 3}, {"3", "", 1, 1}, {"", "", 4, 1}, {"6", "2", 4, 2}}) {
    INFO("hosts " << c.hosts << ", " << c.value << " of at most " << c.most);
    const auto said = run(
        4,
        [&](int r) {
          on_host(fmt::format("host{}", r * c.hosts / 4));
          if (*c.value != 0) ::setenv("NCCL_NCHANNELS_PER_NET_PEER", c.value, 1);
          if (*c.most != 0) ::setenv("CCL_MAX_CTAS", c.most, 1);
        },
        [&](const Communicator& comm) -> Answer {
          CCL_TRY(const auto to_all, ToAll::create(comm));
          CCL_TRY(const auto sums, (Collective<AllReduce, Tree, Simple, Over>::create(comm)));
          if (sums.plan().channels != 1) return "the tree has them, too";
          if (to_all.plan().channels != c.channels) {
            return fmt::format("{} channels", to_all.plan().channels);
          }
          constexpr Index count = 70'001;
          std::vector<int> in(4 * count), out(in.size(), -1);
          for (std::size_t i = 0; i < in.size(); ++i) in[i] = int(i) * 5 + comm.rank();
          CCL_CHECK(to_all(in.data(), out.data(), count));
          for (std::size_t i = 0; i < in.size(); ++i) {
            const auto from = int(i / count), at = int(i % count + comm.rank() * count);
            if (out[i] != at * 5 + from) return "wrong data";
          }
          return "well";
        });
    for (const auto& text : said) CHECK(text == "well");
  }
}

TEST_CASE("a communicator may have channels between pairs of its own, over a network only") {
  for (const int hosts : {2, 1}) {
    const auto said = run(
        4,
        [&](int r) {
          on_host(fmt::format("host{}", r * hosts / 4));
          ::setenv("NCCL_NCHANNELS_PER_NET_PEER", "2", 1);
        },
        [&](const Communicator& comm) -> Answer {
          Config config;
          config.net_channels = 3;
          CCL_TRY(const auto part, comm.split(0, comm.rank(), config));
          CCL_TRY(const auto of_part, ToAll::create(*part));
          CCL_TRY(const auto of_all, ToAll::create(comm));
          CCL_CHECK(part->finalize());
          return fmt::format("{} and {}", of_part.plan().channels, of_all.plan().channels);
        });
    for (const auto& text : said) CHECK(text == (hosts > 1 ? "3 and 2" : "1 and 1"));
  }
}

TEST_CASE("what pairs hold over a network stays within the memory budget") {
  constexpr int ranks = 8;
  const auto said = run(
      ranks,
      [](int r) {
        on_host(fmt::format("host{}", r));
        ::setenv("CCL_MEMORY_BUDGET", "8M", 1);
      },
      [](const Communicator& comm) -> Answer {
        CCL_TRY(const auto first, ToAll::create(comm));
        if (comm.memory_used() > comm.memory_budget() / 2) return "more than half";
        // Slots both to send from and to receive into: 14 wires of 4 slots.
        if (first.plan().slot_bytes != 64 << 10) {
          return fmt::format("slots of {} bytes", first.plan().slot_bytes);
        }
        CCL_TRY(const auto second, ToAll::create(comm));
        CCL_TRY(const auto pairs, Pairs::create(comm));
        const Index promised = comm.memory_used();
        constexpr Index count = 50'000;
        std::vector<int> in(ranks * count, comm.rank()), out(in.size(), -1);
        for (const auto* each : {&first, &second}) {
          CCL_CHECK((*each)(in.data(), out.data(), count));
          for (std::size_t i = 0; i < out.size(); ++i) {
            if (out[i] != int(i / count)) return "wrong data";
          }
        }
        CCL_CHECK(swap(pairs, comm.rank(), comm.rank() ^ 1));
        if (comm.memory_used() != promised) return "wires took more than was promised";
        return comm.memory_used() <= comm.memory_budget() ? "well" : "over the budget";
      });
  for (const auto& text : said) CHECK(text == "well");
}

TEST_CASE("a peer that dies before its end of a pair is made is named") {
  Shared<std::atomic<int>> waiting;
  const auto said = run(
      3, [](int r) { on_host(fmt::format("host{}", r)); },
      [&](const Communicator& comm) -> Answer {
        CCL_TRY(const auto pairs, Pairs::create(comm));
        if (comm.rank() == 2) {  // when both wait for it
          wait_until([&] { return *waiting == 2; }, 20);
          sleep_s(0.1);
          ::kill(::getpid(), SIGKILL);
        }
        int x = 0;
        ++*waiting;
        const auto begin = Clock::now();
        const auto done = pairs.recv(&x, 1, 2);
        if (done) return "received";
        return fmt::format("{} of rank {}{}", int(done.error().code), done.error().peer,
                           seconds(Clock::now() - begin) < 15 ? "" : ", late");
      },
      false, 2);
  for (int r = 0; r < 2; ++r) {
    INFO(said[std::size_t(r)]);
    CHECK(said[std::size_t(r)] == fmt::format("{} of rank 2", int(Errc::peer_lost)));
  }
}
