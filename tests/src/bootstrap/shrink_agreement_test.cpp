// A rank that asks all others whether they have the new communicator, while some never answer.
#include "bootstrap/shrink_agreement.hpp"

#include <memory>
#include <thread>
#include <vector>

#include "bootstrap/core.hpp"
#include "net/crypto/secret.hpp"
#include "support/catch.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::net;

namespace {

constexpr int ranks = 12;

/// Rank 0 of a communicator whose other ranks are stopped: the system accepts their connections.
struct StoppedPeers {
  Secret secret = detail::net::random_secret();
  std::vector<detail::Fd> listening;
  std::shared_ptr<detail::Bootstrap::Core> core =
      std::make_shared<detail::Bootstrap::Core>(0, ranks, secret, 20.0, nullptr);
  std::vector<Member> members;

  StoppedPeers() {
    for (int r = 0; r < ranks; ++r) {
      listening.push_back(listen_at(Address::parse("127.0.0.1:0").value()).value());
      members.push_back(this_member(r, bound_address(listening.back().get()).value().wire()));
    }
  }
  /// Asks all of them. Returns the answer and the seconds.
  std::pair<bool, double> ask() {
    core->membership().set_members(Engine::get().lock(), members);
    const auto begin = test::Clock::now();
    const bool made = core->agreement().is_made(false);
    return {made, seconds(test::Clock::now() - begin)};
  }
};

}  // namespace

TEST_CASE("stopped ranks are asked together: they cost the time of one") {
  StoppedPeers peers;
  const auto [made, s] = peers.ask();
  CHECK_FALSE(made);
  CHECK(s < 2 * (ranks - 1) / 2);  // one after another takes 2 s for each
}

TEST_CASE("one rank that has the communicator is enough, and the stopped ones are not waited for") {
  StoppedPeers peers;
  auto gate = AuthListener::listen(Address::parse("127.0.0.1:0").value(), peers.secret).value();
  peers.members.back().listen = gate.address().wire();
  std::jthread answers{[&] {
    auto one = gate.accept(Deadline::after(20), nullptr);
    const std::byte yes{1};
    if (one) (void)one->socket.send({&yes, 1});
  }};
  const auto [made, s] = peers.ask();
  CHECK(made);
  CHECK(s < 2 * (ranks - 1) / 2);
}
