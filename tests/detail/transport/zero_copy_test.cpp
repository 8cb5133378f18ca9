#include <ccl/algo/pairwise.hpp>
#include <ccl/collective.hpp>
#include <ccl/detail/transport/zero_copy.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/socket.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include <sys/mman.h>

namespace ccl::test {

TEST_CASE("an offer is for one step and says where it goes") {
  detail::ZeroCopy past{4};
  int a = 0, b = 0;
  CHECK(!past.offered(0, 4));
  past.offer(5, &a, 4);
  past.offer(5, &a, 4);
  CHECK(past.offered(5, 4));
  CHECK(!past.offered(5, 3));
  CHECK(!past.offered(5, 5));
  CHECK(!past.offered(4, 4));
  CHECK(!past.offered(6, 4));
  CHECK(static_cast<void*>(past.place(5)) == &a);
  past.offer(6, &b, 4);
  CHECK(static_cast<void*>(past.place(5)) == &a);
  CHECK(!past.offered(5, 4));
}

TEST_CASE("what was lent last is known to the lanes") {
  detail::ZeroCopy past{4};
  const int a = 0, b = 0;
  CHECK(past.lent() == 0);
  CHECK(past.lend(2, &a, 4));
  CHECK(past.lend(3, &b, 4));
  CHECK(past.lent() == 4);
  CHECK(static_cast<const void*>(past.place(2)) == &a);
}

TEST_CASE("lanes publish the steps that they want, and how large the last of them is") {
  detail::ZeroCopy past{2};
  CHECK(past.wanted() == 0);
  past.want(1, 24);
  CHECK(past.wanted() == 1);
  CHECK(past.wanted_bytes() == 24);
  past.want(4, -1);
  CHECK(past.wanted() == 4);
  CHECK(past.wanted_bytes() == -1);
}

TEST_CASE("who revokes waits for whoever is at the memory, and nobody comes after") {
  detail::ZeroCopy past{2};
  std::atomic<bool> inside{false}, leave{false}, left{false}, allowed{false}, too_soon{false};
  std::thread proxy{[&] {
    const detail::ZeroCopy::Use use{&past};
    allowed = use.allowed();
    inside = true;
    while (!leave) std::this_thread::yield();
    left = true;
  }};
  while (!inside) std::this_thread::yield();
  std::thread helper{[&] {
    while (!past.revoked()) std::this_thread::yield();
    too_soon = left.load();
    leave = true;
  }};
  past.revoke();
  CHECK(left);
  const detail::ZeroCopy::Use use{&past};
  CHECK(!use.allowed());
  CHECK(detail::ZeroCopy::Use{nullptr}.allowed());
  proxy.join();
  helper.join();
  CHECK(allowed);
  CHECK(!too_soon);
}

TEST_CASE("who gives up in the middle has its memory back: no proxy writes it any more") {
  constexpr int ranks = 3;
  constexpr Index count = Index{4} << 20;
  Config config;
  config.timeout_s = 0.3;
  auto comms = Communicator::create_all(ranks, config);
  REQUIRE(comms.has_value());
  std::atomic<int> late{0}, created{0};
  std::vector<Errc> codes(ranks, Errc::ok);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      using Gather = Collective<AllGather, Pairwise, Simple, SocketTransport>;
      auto gather = Gather::create((*comms)[std::size_t(r)]);
      if (!gather) return;
      ++created;
      std::vector<char> mine(count, char(r)), all(count * ranks);
      // The last rank brings only a part: the others are in the middle of theirs.
      const Index bytes = r == ranks - 1 ? count / 8 : count;
      auto done = (*gather)(mine.data(), all.data(), bytes);
      if (!done) codes[std::size_t(r)] = done.error().code;
      std::fill(all.begin(), all.end(), char(0x5a));
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
      late += int(std::count_if(all.begin(), all.end(), [](char c) { return c != 0x5a; }));
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(created == ranks);
  CHECK(late == 0);
  CHECK(std::count(codes.begin(), codes.end(), Errc::ok) < ranks);
}

TEST_CASE("that other processes can read memory counts for ten milliseconds") {
  constexpr Word ms = 1'000'000;
  constexpr std::size_t page = 4096;
  auto* const two = static_cast<char*>(
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(two != MAP_FAILED);
  Word may_lend = 1, taken_back = 0;
  detail::ZeroCopy lent{true, detail::PeerProcess{}, &may_lend, &taken_back,
                        detail::LendingChoice::Rule::always};
  const auto seen = [&](std::size_t at, std::size_t bytes, Word now_ms) {
    return lent.can_be_read(two + at, Index(bytes), now_ms * ms);
  };
  CHECK(seen(0, page, 1000));
  CHECK(seen(page, page, 1001));
  REQUIRE(::mprotect(two, 2 * page, PROT_NONE) == 0);
  CHECK(seen(0, 2 * page, 1009));  // as it was before
  CHECK(seen(100, page, 1009));
  CHECK_FALSE(seen(0, 2 * page, 1010));
  CHECK_FALSE(seen(0, page, 1011));
  ::munmap(two, 2 * page);
}

}  // namespace ccl::test
