// Attacks on jobs of 2, 8 and 64 ranks. Hosts are network namespaces; the attacker has a host of
// its own in the same network, or is another user of a host. A line of the table is printed for
// each. ATTACK="another user of a host" runs one of them, and ATTACK_RANKS=64 one size.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "net/crypto/sodium.hpp"
#include "support/attacked_job.hpp"
#include "support/attackers.hpp"
#include "support/bad_messages.hpp"
#include "support/lan.hpp"
#include "support/played_rank.hpp"
#include "support/skip.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::hostile;

namespace {

#if defined(CCL_TEST_LONG)
constexpr int callers = 2000;
const std::vector<int> usual_sizes{2, 8, 64};
constexpr std::size_t frames_each = 1000;  // at most, of a size
constexpr long joins = 100, hellos = 500;
#else
constexpr int callers = 300;
const std::vector<int> usual_sizes{2, 8};
constexpr std::size_t frames_each = 5;
constexpr long joins = 10, hellos = 120;
#endif

std::vector<int> sizes() {
  const char* const ranks = std::getenv("ATTACK_RANKS");
  return ranks == nullptr ? usual_sizes : std::vector{std::atoi(ranks)};
}

void print(const char* name, int ranks, const Outcome& of) {
  std::printf("| %s | %d | %s | %.2f | %.1f | %ld |\n", name, ranks, of.text().c_str(), of.start_s,
              of.call_ms, of.tries);
  std::fflush(stdout);
}

const Codes lost{int(Errc::refused),   int(Errc::mismatch), int(Errc::peer_lost),
                 int(Errc::timed_out), int(Errc::aborted),  int(Errc::network)};

std::vector<Attack> attacks() {
  const auto many = [](bool talks) {
    return [talks](Board& board, int) { many_callers(board, talks, callers); };
  };
  const auto relays = [](bool alters) {
    return [alters](Board& board, int) { relay(board, alters); };
  };
  const auto floods = [](bool claims) {
    return [claims](Board& board, int) { flood(board, claims); };
  };
  constexpr int nobody = 65534;
  const Codes refused{int(Errc::refused)};
  return {
      {.name = "none", .calls = 200},
      {.name = "join by address and run id", .run = join_by_words, .calls = 200, .tries = joins},
      {.name = "stand in for the root",
       .run = stand_in,
       .root_for_others = own_address,
       .codes = refused},
      {.name = "relay", .run = relays(false), .root_for_others = own_address, .calls = 200},
      {.name = "relay that alters what the root says, `full`",
       .run = relays(true),
       .encryption = "full",
       .root_for_others = own_address,
       .codes = lost},
      {.name = "replay of a recorded handshake",
       .run = replay,
       .late_root_rank = true,
       .root_for_others = own_address,
       .calls = 200,
       .tries = 500},
      {.name = "words tried on a recorded handshake of public words",
       .run = try_words,
       .by_words = true,
       .root_for_others = own_address,
       .calls = 200,
       .tries = 500},
      {.name = "the same, without libsodium",
       .run = try_words,
       .by_words = true,
       .no_sodium = true,
       .root_for_others = own_address,
       .calls = 200,
       .tries = 500},
      {.name = "silent callers", .run = many(false), .calls = 200},
      {.name = "slow callers", .run = many(true), .calls = 200},
      {.name = "garbage, 1 MiB each, from the start on",
       .run = floods(false),
       .calls = 200,
       .tries = 1000},
      {.name = "claims of 4 GiB, from the start on",
       .run = floods(true),
       .calls = 200,
       .tries = 1000},
      {.name = "garbage, 1 MiB each, during calls",
       .run = floods(false),
       .when_created = true,
       .calls = 200,
       .tries = 1000},
      {.name = "claims of 4 GiB during calls",
       .run = floods(true),
       .when_created = true,
       .calls = 200,
       .tries = 1000},
      {.name = "another user of a host",
       .run = other_user,
       .host = 0,
       .user = nobody,
       .calls = 200,
       .tries = 1000},
      {.name = "fields of hellos at extremes, with the secret",
       .run = bad_hello_of_peer,
       .calls = 200,
       .tries = hellos},
  };
}

}  // namespace

TEST_CASE("a job ends right beside strangers, and no stranger has a success") {
  const Lan lan{hosts + 1};
  if (!lan.good()) return skip(no_lan);
  std::printf(
      "| attack | ranks | ends | start-up, s | a call, ms | tries |\n|---|---|---|---|---|---|\n");
  const char* const only = std::getenv("ATTACK");
  for (const Attack& attack : attacks()) {
    if (only != nullptr && std::string_view{attack.name} != only) continue;
    if (attack.by_words && !has_sodium()) {
      skip_part(sodium_problem());
      continue;
    }
    for (const int ranks : sizes()) print(attack.name, ranks, play(lan, attack, ranks));
  }
}

TEST_CASE("a rank that sends a frame with a field at an extreme is named by all others") {
  const Lan lan{hosts + 1};
  if (!lan.good()) return skip(no_lan);
  for (const int ranks : sizes()) {
    const auto frames = bad_frames(ranks);
    Outcome all;
    const std::size_t apart = std::max<std::size_t>(1, frames.size() / frames_each);
    for (std::size_t n = 0; n < frames.size(); n += apart) {
      const auto run = [&](Board& board, int) {
        PlayedRank played{board.id, ranks, "10.99.0.4:0"};
        board.in_place = true;
        played.form_ring();
        write_frame(played.next, frames[n].header, frames[n].payload);
        sleep_s(60);
      };
      INFO(frames[n].why);
      const Attack attack{.name = frames[n].why.c_str(),
                          .run = run,
                          .last_is_played = true,
                          .codes = {int(Errc::mismatch)}};
      const Outcome one = play(lan, attack, ranks);
      for (const auto& [what, count] : one.ends) all.ends[what] += count;
      ++all.tries;
    }
    print("fields of frames at extremes, with the secret", ranks, all);
  }
}
