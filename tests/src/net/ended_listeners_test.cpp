#include "net/ended_listeners.hpp"

#include <thread>
#include <vector>

#include "net/auth.hpp"
#include "support/catch.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::detail::net;

namespace {

Address any_port() {
  return Address::parse("127.0.0.1:0").value();
}

/// Addresses at which nobody listens: their sockets are bound, so no other gets their ports.
struct Ended {
  explicit Ended(std::size_t number) {
    for (std::size_t n = 0; n < number; ++n) {
      const Address any = any_port();
      sockets.emplace_back(::socket(any.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
      REQUIRE(::bind(sockets.back().get(), any.data(), any.bytes()) == 0);
      addresses.push_back(bound_address(sockets.back().get()).value());
    }
  }
  std::vector<detail::Fd> sockets;
  std::vector<Address> addresses;
};

}  // namespace

TEST_CASE("many listeners that have ended are found in the time of one") {
  Ended ended{300};
  const auto begin = test::Clock::now();
  CHECK(ended_listeners(ended.addresses, Secret{}) == 300);
  const double took_s = test::seconds(test::Clock::now() - begin);
  CHECK(took_s >= 0.5);
  CHECK(took_s < 5);  // one after another: 150 s
  CHECK(ended_listeners({}, Secret{}) == 0);
}

TEST_CASE("only listeners before the first that lives have ended, and it logs no stranger") {
  const Secret secret{};
  const unsigned before = refused_callers().number;
  const auto lives = AuthListener::listen(any_port(), secret);
  REQUIRE(lives);
  Ended some{100};
  for (const std::size_t place : {0u, 1u, 70u, 100u}) {
    auto asked = some.addresses;
    asked.insert(asked.begin() + std::ptrdiff_t(place), lives->address());
    CHECK(ended_listeners(asked, secret) == place);
  }
  const Address where = lives->address();
  const auto caller = auth_connect(where, secret, {}, Deadline::after(20), nullptr);
  CHECK(caller);  // later than the questions, which the listener has answered then
  test::sleep_s(0.2);
  CHECK(refused_callers().number == before);
}

TEST_CASE("a listener that starts within 0.5 s, and one that never answers, have not ended") {
  Ended late{2};
  std::size_t ended = 0;
  for (int tries = 0; tries < 10 && ended != 1; ++tries) {  // a loaded machine may take longer
    late = Ended{2};
    std::thread starts{[&] {
      test::sleep_s(0.2);
      CHECK(::listen(late.sockets[1].get(), 8) == 0);
    }};
    ended = ended_listeners(late.addresses, Secret{});
    starts.join();
  }
  CHECK(ended == 1);
  Ended full{1};  // one that takes no further call
  REQUIRE(::listen(full.sockets[0].get(), 0) == 0);
  std::vector<detail::Fd> callers;
  for (int n = 0; n < 4; ++n) {
    const Address& where = full.addresses[0];
    callers.emplace_back(::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(callers.back().get(), where.data(), where.bytes());
  }
  const std::vector both{late.addresses[0], full.addresses[0]};
  CHECK(ended_listeners(both, Secret{}) == 1);
}
