// Errors of the ranks of a bootstrap when one of them fails, leaves, is late or differs.
#include <ccl/detail/runtime/bootstrap.hpp>

#include <array>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "net/auth.hpp"
#include "net/crypto/handshake.hpp"
#include "net/crypto/sodium.hpp"
#include "net/rendezvous.hpp"
#include "support/bootstrap_ranks.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/held_port.hpp"
#include "support/processes.hpp"
#include "support/relay.hpp"
#include "support/skip.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("an abort reaches everybody and names who called it") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  const auto errors = on_ranks(5, [&](int rank) -> Result<void> {
    detail::Status status;
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 5, {20, &status}));
    CCL_CHECK(b->barrier());
    if (rank == 3) {
      Error why;
      why.code = Errc::aborted;
      why.peer = 3;
      why.what = "the user pressed a key";
      b->abort(why);
      return status.result();
    }
    if (rank == 4) {  // not in any call
      while (status.ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return status.result();
    }
    return b->recv(3, 1) ? Result<void>{} : b->barrier();
  });
  for (const Error& e : errors) {
    INFO(e.message());
    CHECK(e.code == Errc::aborted);
    CHECK(e.peer == 3);
    CHECK(e.what.find("pressed a key") != std::string::npos);
  }
}

TEST_CASE("a rank that leaves without finalize is named") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  const auto errors = on_ranks(3, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 3, {20, nullptr}));
    CCL_CHECK(b->barrier());
    if (rank == 1) return {};
    return b->barrier();
  });
  for (const int r : {0, 2}) {
    CHECK(errors[size_t(r)].code == Errc::aborted);
    CHECK(errors[size_t(r)].peer == 1);
    CHECK(errors[size_t(r)].rank == r);
    CHECK_FALSE(errors[size_t(r)].host.empty());
  }
}

TEST_CASE("a missing rank is named when the deadline passes") {
  const Interfaces lo;
  const auto ids = some_ids(GENERATE(1, 2));
  const auto errors = on_ranks(4, [&](int rank) -> Result<void> {
    if (rank == 2) return {};
    CCL_CHECK(detail::Bootstrap::join(ids, rank, 4, {0.5, nullptr}));
    return {};
  });
  for (const int r : {0, 1, 3}) {
    INFO(errors[size_t(r)].message());
    CHECK(errors[size_t(r)].code == Errc::timed_out);
    CHECK(errors[size_t(r)].peer == 2);
  }
}

TEST_CASE("a rank with another secret is refused, and the root's error says that one was") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  const auto root = detail::net::unpack(ids[0]).value();
  const auto errors = on_ranks(2, [&](int rank) -> Result<void> {
    if (rank == 0) CCL_CHECK(detail::Bootstrap::join(ids, rank, 2, {5, nullptr}));
    using namespace detail::net;
    if (rank == 1) {
      sleep_s(1);  // callers count that come while rank 0 waits
      const Secret other = random_secret();
      CCL_CHECK(auth_connect(Address{root.root}, other, {}, Deadline::after(20), nullptr));
    }
    return {};
  });
  CHECK(errors[1].code == Errc::refused);
  INFO(errors[0].message());
  CHECK(errors[0].code == Errc::timed_out);
  CHECK(mentions(errors[0].what, "nothing from rank 1"));
  CHECK(mentions(errors[0].what, "it does not know this job's secret"));
}

TEST_CASE("the last rank to join is not reported as late afterwards") {
  const Interfaces lo;
  const auto ids = some_ids(GENERATE(1, 2));
  std::latch others{2};
  const auto errors = on_ranks(3, [&](int rank) -> Result<void> {
    CCL_TRY(const auto b, detail::Bootstrap::join(ids, rank, 3));
    std::array<int, 3> all{};
    const auto joined =
        rank == 2 ? Result<void>{} : b->all_gather(all.data(), sizeof all[0], 0.2, {"a dance"});
    others.count_down(rank == 2 ? 0 : 1);
    others.wait();
    return joined;
  });
  for (const int r : {0, 1}) {
    INFO(errors[size_t(r)].message());
    CHECK(errors[size_t(r)].code == Errc::timed_out);
    CHECK(errors[size_t(r)].peer == 2);
  }
}

TEST_CASE("a rank that comes after the others have given up gets their error") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  const auto errors = on_ranks(2, [&](int rank) -> Result<void> {
    if (rank == 0) CCL_CHECK(detail::Bootstrap::join(ids, rank, 3, {0.3, nullptr}));
    return {};
  });
  CHECK(errors[0].what.find("nothing from ranks 1 2") != std::string::npos);
  const auto late = detail::Bootstrap::join(ids, 1, 3, {20, nullptr});
  REQUIRE(!late);
  CHECK(late.error().code == Errc::timed_out);
  CHECK(late.error().what.find("the others had given up when rank 1 came") != std::string::npos);
  CHECK(late.error().what.find("no progress for 0.3 s") != std::string::npos);
}

TEST_CASE(
    "a root whose own rank fails before anybody has come tells all others, until it tries again") {
  const Interfaces lo;
  const HeldPort port;
  const Environment spin_wait{"CCL_INIT_TIMEOUT", "20"};
  const std::vector<UniqueId> ids{unique_id_at("127.0.0.1:" + port.text(), "a job").value()};
  REQUIRE(start_root(ids[0], 0).has_value());
  detail::Status aborted;
  aborted.set({Errc::aborted, "for a test"});
  CHECK_FALSE(detail::Bootstrap::join(ids, 0, 3, {20, &aborted}).has_value());
  for (const Error& late : on_ranks(2, [&](int r) -> Result<void> {
         CCL_CHECK(detail::Bootstrap::join(ids, r + 1, 3, {20, nullptr}));
         return {};
       })) {
    INFO(late.message());
    CHECK(late.code == Errc::aborted);
    CHECK(mentions(late.what, "for a test"));
  }
  REQUIRE(start_root(ids[0], 0).has_value());
  all_ok(on_ranks(3, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 3, {20, nullptr}));
    return b->finalize();
  }));
}

TEST_CASE("the end of one does not harm another that forms at the same place") {
  const Interfaces lo;
  const HeldPort port;  // as of CCL_COMM_ID: the id is the same each time
  const std::vector<UniqueId> ids{unique_id_at("127.0.0.1:" + port.text(), "a job").value()};
  std::vector<std::unique_ptr<detail::Bootstrap>> first(2), second(2);
  const auto meet = [&](std::vector<std::unique_ptr<detail::Bootstrap>>& all) {
    all_ok(on_ranks(2, [&](int rank) -> Result<void> {
      CCL_TRY(all[size_t(rank)], detail::Bootstrap::join(ids, rank, 2, {20, nullptr}));
      return {};
    }));
  };
  REQUIRE(start_root(ids[0], 0).has_value());
  meet(first);
  REQUIRE(start_root(ids[0], 0).has_value());
  first[0]->abort({Errc::aborted, "for a test", -1, 0});
  meet(second);
  CHECK_FALSE(first[0]->status().ok());
}

TEST_CASE("ranks that disagree get an error that says so") {
  const Interfaces lo;
  SECTION("on the number of ranks") {
    const auto ids = some_ids(1);
    for (const Error& e : on_ranks(2, [&](int rank) -> Result<void> {
           CCL_CHECK(detail::Bootstrap::join(ids, rank, 2 + rank, {20, nullptr}));
           return {};
         })) {
      CHECK(e.code == Errc::mismatch);
    }
  }
  SECTION("on who is who") {
    const auto ids = some_ids(1);
    for (const Error& e : on_ranks(2, [&](int) -> Result<void> {
           CCL_CHECK(detail::Bootstrap::join(ids, 1, 3, {20, nullptr}));
           return {};
         })) {
      CHECK(e.code == Errc::mismatch);
      CHECK(e.peer == 1);
    }
  }
  SECTION("on the size of a part") {
    const auto ids = some_ids(1);
    for (const Error& e : on_ranks(3, [&](int rank) -> Result<void> {
           CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 3, {20, nullptr}));
           char all[30] = {};
           return b->all_gather(all, rank == 1 ? 4 : 8);
         })) {
      CHECK(e.code == Errc::mismatch);
    }
  }
  SECTION("on the purpose of a rendezvous") {
    const auto ids = some_ids(1);
    for (const Error& e : on_ranks(3, [&](int rank) -> Result<void> {
           CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 3, {20, nullptr}));
           char all[24] = {};
           CCL_CHECK(b->all_gather(all, 8, {}, {"a dance", rank == 1 ? "a waltz" : "a tango"}));
           return b->all_gather(all, 8, {}, {rank == 1 ? "a duel" : "a dance", "at dawn"});
         })) {
      INFO(e.message());
      CHECK(e.code == Errc::mismatch);
      CHECK(mentions(e.what, "is in a duel at dawn") !=
            mentions(e.what, "rank 1 is in a dance at dawn"));
      CHECK(mentions(e.what, "in the same order"));
    }
  }
  SECTION("on whether it is a barrier") {
    for (const bool late : {false, true}) {  // into it, when the others' parts are there
      const auto ids = some_ids(1);
      for (const Error& e : on_ranks(3, [&](int rank) -> Result<void> {
             CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 3, {20, nullptr}));
             char all[24] = {};
             for (int i = 0; i < 100; ++i) {
               CCL_CHECK(b->barrier());
               CCL_CHECK(b->all_gather(all, 8));
             }
             if ((rank == 1) == late) std::this_thread::sleep_for(std::chrono::milliseconds(200));
             return rank == 1 ? b->finalize(0) : b->all_gather(all, 8, 0, {"a dance"});
           })) {
        INFO(e.message());
        CHECK(e.code == Errc::mismatch);
        CHECK(mentions(e.what, "is in a dance where rank 1 is in finalize"));
      }
    }
  }
}

TEST_CASE("a wrong secret is refused, and the job goes on") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  auto wrong = ids;
  wrong[0].bytes[40] ^= std::byte{1};  // within the secret
  const auto stranger = detail::Bootstrap::join(wrong, 1, 2, {20, nullptr});
  REQUIRE_FALSE(stranger);
  CHECK(stranger.error().code == Errc::refused);
  all_ok(on_ranks(2, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 2, {20, nullptr}));
    return b->finalize();
  }));
}

TEST_CASE("wrong use is an error") {
  CHECK(detail::Bootstrap::join({}, 0, 2).error().code == Errc::invalid_argument);
  CHECK(detail::Bootstrap::join({}, 2, 2).error().code == Errc::invalid_argument);
  const std::vector<UniqueId> empty(1);
  CHECK(detail::Bootstrap::join(empty, 0, 2).error().code == Errc::invalid_argument);
  auto alone = detail::Bootstrap::join({}, 0, 1).value();
  CHECK(alone->send(1, 0, nullptr, 0).error().code == Errc::invalid_argument);
  CHECK(alone->recv(-1, 0).error().code == Errc::invalid_argument);
  CHECK(alone->all_gather(nullptr, 4).error().code == Errc::invalid_argument);
}

TEST_CASE("frames that are altered on the way are an error that names both ends") {
  const auto* const kind = GENERATE("integrity", "full");
  if (!detail::net::has_sodium()) return skip(detail::net::sodium_problem());
  const Environment encrypted{"CCL_ENCRYPTION", kind};
  const Interfaces lo;
  const auto ids = some_ids(1);
  // Rank 1 reaches the root through an attacker, who alters what the root says after the handshake.
  auto content = detail::net::unpack(ids[0]).value();
  Relay relay{detail::net::Address{content.root}, Relay::Alters::listener,
              sizeof(detail::net::Greeting) + sizeof(detail::net::Digest)};
  content.root = relay.address().wire();
  content.root_rank = 0;
  const std::vector<UniqueId> tapped{detail::net::pack(content)};
  const auto errors = on_ranks(2, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(rank == 1 ? tapped : ids, rank, 2, {20, nullptr}));
    return b->finalize();
  });
  INFO(errors[1].message());
  CHECK(errors[1].code == Errc::refused);
  CHECK(errors[1].rank == 1);
  CHECK(errors[1].peer == 0);
  CHECK(mentions(errors[1].what, "the connection to the root of rank 0"));
  CHECK(mentions(errors[1].what, "altered"));
  CHECK(errors[0].code != Errc::ok);
}

TEST_CASE("ranks with different CCL_ENCRYPTION all get an error that names both values") {
  if (!detail::net::has_sodium()) return skip(detail::net::sodium_problem());
  const Interfaces lo;
  const auto ids = some_ids(1);  // its root listens without encryption
  auto content = detail::net::unpack(ids[0]).value();
  Relay relay{detail::net::Address{content.root}};
  content.root = relay.address().wire();
  const std::vector<UniqueId> relayed{detail::net::pack(content)};
  Error first;
  std::thread early{[&] {
    const auto joined = detail::Bootstrap::join(relayed, 0, 2, {20, nullptr});
    if (!joined) first = joined.error();
  }};
  // Rank 0 sends its claim when it has read the setting.
  CHECK(wait_until([&] { return relay.caller_has_spoken(); }, 20));
  {
    const Environment encrypted{"CCL_ENCRYPTION", "full"};
    const auto late = detail::Bootstrap::join(ids, 1, 2, {20, nullptr});
    REQUIRE_FALSE(late);
    CHECK(late.error().code == Errc::mismatch);
    CHECK(mentions(late.error().what, "CCL_ENCRYPTION is full here and off at the other end"));
  }
  early.join();
  CHECK(first.code == Errc::mismatch);
  CHECK(first.peer == 1);
  CHECK(mentions(first.what, "CCL_ENCRYPTION is off here and full at the other end"));
}
