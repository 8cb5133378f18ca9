// Attacks on jobs of 2, 8 and 64 ranks. Hosts are network namespaces; the attacker has a host of
// its own in the same network, or is another user of a host. A line of the table is printed for
// each.
#include <ccl/comm/unique_id.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "net/auth.hpp"
#include "net/crypto/secret.hpp"
#include "net/rendezvous.hpp"
#include "support/bad_messages.hpp"
#include "support/environment.hpp"
#include "support/job.hpp"
#include "support/lan.hpp"
#include "support/played_rank.hpp"
#include "support/processes.hpp"
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::net;
using ccl::detail::Fd;

namespace {

constexpr int max_ranks_here = 64, hosts = 3, attacker = hosts;
#if defined(CCL_TEST_LONG)
constexpr int callers = 2000;
const std::vector<int> sizes{2, 8, 64};
constexpr std::size_t frames_each = 1000;  // at most, of a size
constexpr long joins = 100, hellos = 500;
#else
constexpr int callers = 300;
const std::vector<int> sizes{2, 8};
constexpr std::size_t frames_each = 5;
constexpr long joins = 10, hellos = 120;
#endif

double now_s() {
  return seconds(test::Clock::now().time_since_epoch());
}

struct RankEnd {
  int code = -1, peer = -1;                            // 0: success
  int calls = 0;                                       // from `begun_at` on
  double created_at = 0, begun_at = 0, called_at = 0;  // begun: the second half of the calls
  char text[400] = {};
};
struct Ports {
  std::atomic<int> count{0};
  std::uint16_t at[128] = {};
};
struct Board {
  UniqueId id;
  std::atomic<bool> rooted{false}, in_place{false}, go{false};
  std::atomic<int> created{0};
  std::atomic<long> tries{0}, successes{0};  // of the attacker
  std::atomic<int> last_call{-1};            // of all ranks; rank 0 sets it
  double go_at = 0;
  RankEnd rank[max_ranks_here];
  Ports listening[hosts];  // of the ranks
};

using Codes = std::set<int>;

/// One attack. Without codes, all ranks must succeed.
struct Attack {
  const char* name;
  std::function<void(Board&, int ranks)> run = {};
  int host = attacker;
  int user = 0;
  bool when_created = false;  // else before ranks call the root
  const char* encryption = "off";
  bool late_root_rank = false;            // rank 0 joins 1 s after the others
  const char* root_for_others = nullptr;  // address that all ranks but 0 take for the root
  bool last_is_played = false;            // the attacker is the last rank
  Codes codes = {};                       // of all real ranks, except rank 0 if the root is another
  int calls = 10;                         // at least
  long tries = 0;                         // of the attacker, during which the calls go on
};

// ---- the job

std::vector<std::uint16_t> listening_ports() {
  std::vector<std::uint16_t> ports;
  std::ifstream table{"/proc/thread-self/net/tcp"};
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    unsigned port = 0, state = 0;
    if (std::sscanf(line.c_str(), " %*d: %*8x:%4x %*8x:%*4x %2x", &port, &state) == 2 &&
        state == 0x0a) {
      ports.push_back(std::uint16_t(port));
    }
  }
  return ports;
}

void publish_ports(Ports& to) {
  int n = 0;
  for (const auto port : listening_ports()) {
    if (n < 128) to.at[n++] = port;
  }
  to.count = n;
}

UniqueId with_root(const UniqueId& id, const char* address) {
  IdContent content = unpack(id).value();
  content.root = Address::parse(address).value().wire();
  return pack(content);
}

Result<void> run_job(Board& board, const Attack& attack, int rank, int ranks) {
  UniqueId id = board.id;
  if (rank != 0 && attack.root_for_others != nullptr) id = with_root(id, attack.root_for_others);
  // Where ranks wait in vain, they wait to the limit.
  const double limit_s = attack.codes.empty() || attack.last_is_played ? 60 : 5;
  CCL_TRY(auto job, Job::create(id, rank, ranks, limit_s, limit_s));
  board.rank[rank].created_at = now_s();
  if (rank < hosts) publish_ports(board.listening[rank]);
  ++board.created;
  const int all = ranks - int(attack.last_is_played);
  if (attack.when_created) {
    (void)wait_until([&] { return board.created == all && board.in_place; }, 60);
  }
  RankEnd& end = board.rank[rank];
  for (int n = 0; n != board.last_call + 1 || n == 0; ++n) {
    if (n == attack.calls / 2) end.begun_at = now_s();
    const bool over = n + 1 >= attack.calls && board.tries >= attack.tries;
    if (rank == 0 && over) board.last_call = n;  // the others have it when this call is over
    CCL_CHECK(job.step());
    end.called_at = now_s();
    end.calls = n + 1 - attack.calls / 2;
  }
  return job.finalize();
}

int run_rank(Board& board, const Lan& lan, const Attack& attack, int rank, int ranks) {
  lan.enter(rank % hosts);
  const Environment log{"CCL_DEBUG", "NONE"};
  const Environment encryption{"CCL_ENCRYPTION", attack.encryption};
  if (rank == 0) {
    const auto id = create_unique_id();
    if (!id) return 1;
    board.id = *id;
    board.rooted = true;
  }
  if (!wait_until([&] { return board.go.load(); }, 60)) return 2;
  if (rank == 0 && attack.late_root_rank) sleep_s(1);
  const auto done = run_job(board, attack, rank, ranks);
  RankEnd& end = board.rank[rank];
  end.code = done ? 0 : int(done.error().code);
  end.peer = done ? -1 : done.error().peer;
  if (!done) std::snprintf(end.text, sizeof end.text, "%s", done.error().message().c_str());
  return 0;
}

// ---- attackers

/// Address of the root, or of a rank's listener.
Address at(int host, std::uint16_t port) {
  return Address::parse(fmt::format("{}:{}", Lan::address(host), port)).value();
}
Address root_of(const Board& board) {
  return Address{unpack(board.id).value().root};
}
std::vector<Address> listeners_of(const Board& board) {
  std::vector<Address> all;
  for (int h = 0; h < hosts; ++h) {
    for (int n = 0; n < board.listening[h].count; ++n)
      all.push_back(at(h, board.listening[h].at[n]));
  }
  return all;
}
Fd connect_to(const Address& where) {
  auto fd = connect_once(where, Deadline::after(1), nullptr);
  return fd ? *std::move(fd) : Fd{};
}
void raise_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, 8192);
  limit.rlim_max = std::max(limit.rlim_cur, limit.rlim_max);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Joins with address and run id, but without the secret.
void join_by_words(Board& board, int ranks) {
  const std::string address = root_of(board).to_string();
  board.in_place = true;
  for (;;) {
    Secret secret = unpack(unique_id_at(address, "attacks").value()).value().secret;
    if (board.tries++ % 2 != 0) secret = random_secret();
    const Hello hello{HelloKind::join, ranks, 1, 0,
                      this_member(ranks - 1, at(attacker, 5000).wire())};
    const auto in = auth_connect(root_of(board), secret, bytes_of(hello), Deadline::after(0.5),
                                 nullptr, Listener::has_started);
    board.successes += in.has_value();
    for (const Address& rank : listeners_of(board)) {
      const auto called = auth_connect(rank, secret, bytes_of(hello), Deadline::after(0.5), nullptr,
                                       Listener::has_started);
      board.successes += called.has_value();
    }
  }
}

constexpr const char* own_address = "10.99.0.4:4712";

/// Listens in place of the root, without the secret.
void stand_in(Board& board, int) {
  auto gate = AuthListener::listen(Address::parse(own_address).value(), random_secret());
  if (!gate) ::_exit(91);
  board.in_place = true;
  for (;;) {
    board.successes += gate->accept(Deadline::after(60), nullptr).has_value();
  }
}

/// Passes the bytes of many callers on to the root, and keeps those of the first caller.
class Passes {
 public:
  Passes(const Board& board, bool alters) : to_{root_of(board)}, alters_{alters} {
    gate_ = std::move(*listen_at(Address::parse(own_address).value()));
  }
  void run() {
    for (;;) {
      std::vector<pollfd> ends{{gate_.get(), POLLIN, 0}};
      for (const auto& [caller, root] : lines_) {
        ends.push_back({caller.get(), POLLIN, 0});
        ends.push_back({root.get(), POLLIN, 0});
      }
      if (::poll(ends.data(), ends.size(), 20) <= 0) continue;
      std::set<std::size_t> over;
      for (std::size_t n = 0; n < lines_.size(); ++n) {
        auto& [caller, root] = lines_[n];
        if (ends[1 + 2 * n].revents != 0 && !move(caller, root, n == 0, false)) over.insert(n);
        if (ends[2 + 2 * n].revents != 0 && !move(root, caller, false, alters_)) over.insert(n);
      }
      for (auto n = over.rbegin(); n != over.rend(); ++n) {
        lines_[*n].first.reset();
        lines_[*n].second.reset();
      }
      if (ends[0].revents == 0) continue;
      Fd caller{::accept4(gate_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
      Fd root = connect_to(to_);
      if (caller && root) lines_.emplace_back(std::move(caller), std::move(root));
    }
  }
  /// Bytes of the first caller: its claim, hello and tag.
  std::vector<std::byte> recorded() {
    const std::lock_guard lock{mutex_};
    return record_;
  }

 private:
  bool move(const Fd& from, const Fd& to, bool records, bool alters) {
    std::byte some[65536];
    if (!from) return true;
    const ssize_t n = ::recv(from.get(), some, sizeof some, MSG_DONTWAIT);
    if (n <= 0) return n < 0;
    const std::lock_guard lock{mutex_};
    if (records) record_.insert(record_.end(), some, some + n);
    passed_ += std::size_t(n);
    if (alters && passed_ > 400) some[n - 1] ^= std::byte{1};  // after the handshake
    return send_all(to.get(), some, Index(n), soon(), nullptr).has_value();
  }
  const Address to_;
  const bool alters_;
  Fd gate_;
  std::vector<std::pair<Fd, Fd>> lines_;
  std::mutex mutex_;
  std::vector<std::byte> record_;
  std::size_t passed_ = 0;
};

void relay(Board& board, bool alters) {
  Passes passes{board, alters};
  board.in_place = true;
  passes.run();
}

/// Relays, and plays what the first caller said to the root and to all ranks, again and again.
void replay(Board& board, int) {
  Passes passes{board, false};
  std::thread passing{[&] { passes.run(); }};
  board.in_place = true;
  for (;;) {
    const auto record = passes.recorded();
    auto to = listeners_of(board);
    to.push_back(root_of(board));
    for (std::size_t n = 0; !record.empty() && n < to.size(); ++n) {
      const Fd line = connect_to(to[n]);
      if (!line) continue;
      ++board.tries;
      (void)send_all(line.get(), record.data(), Index(record.size()), soon(), nullptr);
      // The greeting comes; an answer would be a success.
      std::byte in[sizeof(Greeting) + sizeof(Digest)];
      board.successes +=
          recv_all(line.get(), in, Index(sizeof in), Deadline::after(0.3), nullptr).has_value();
    }
    sleep_s(0.002);
  }
}

/// 2,000 callers that say nothing, or that say one byte of a claim each 0.1 s.
void many_callers(Board& board, bool talks) {
  raise_descriptors();
  std::vector<std::pair<Fd, std::size_t>> lines;
  const Claim claim;
  const auto* const bytes = reinterpret_cast<const char*>(&claim);
  for (;;) {
    while (lines.size() < std::size_t(callers)) {
      Fd line = connect_to(root_of(board));
      if (!line) break;  // the root has ended
      ++board.tries;
      lines.emplace_back(std::move(line), 0);
    }
    board.in_place = true;
    sleep_s(0.1);
    for (auto& [line, said] : lines) {
      if (talks &&
          ::send(line.get(), bytes + said % sizeof claim, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) {
        ++said;
      }
    }
    std::erase_if(lines, [](const auto& of) {  // turned away: it comes again
      char byte;
      for (;;) {
        const auto n = ::recv(of.first.get(), &byte, 1, MSG_DONTWAIT);
        if (n <= 0) return n == 0 || errno != EAGAIN;
      }
    });
  }
}

/// Sends garbage, or claims with the longest hello, as fast as it can, on four threads.
void flood(Board& board, bool claims) {
  const auto one = [&](unsigned number) {
    std::vector<std::byte> garbage(std::size_t{1} << 20, std::byte{0x16});
    if (claims) {
      Claim claim;
      claim.hello_bytes = ~std::uint32_t{0} - 1 - number;
      std::memcpy(garbage.data(), &claim, sizeof claim);
    }
    for (;;) {
      auto to = listeners_of(board);
      to.push_back(root_of(board));
      for (const Address& where : to) {
        const Fd line = connect_to(where);
        if (!line) continue;
        ++board.tries;
        (void)send_all(line.get(), garbage.data(), Index(garbage.size()), Deadline::after(0.2),
                       nullptr);
      }
    }
  };
  board.in_place = true;
  std::vector<std::jthread> threads;
  for (unsigned n = 0; n < 4; ++n) threads.emplace_back(one, n);
}

/// Another user of a host: tries its Unix sockets, its ports and its processes.
void other_user(Board& board, int) {
  board.in_place = true;
  for (;;) {
    std::ifstream table{"/proc/self/net/unix"};
    for (std::string line; std::getline(table, line);) {
      const auto name = line.find('@');
      if (name == line.npos) continue;
      sockaddr_un to{};
      to.sun_family = AF_UNIX;
      const std::string text = line.substr(name + 1);
      std::memcpy(to.sun_path + 1, text.data(), std::min(text.size(), sizeof to.sun_path - 1));
      const Fd line_to{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
      const auto bytes = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + text.size());
      if (::connect(line_to.get(), reinterpret_cast<const sockaddr*>(&to), bytes) != 0) continue;
      ++board.tries;
      const std::array<char, 256> request{};
      (void)::send(line_to.get(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      pollfd wait{line_to.get(), POLLIN, 0};
      (void)::poll(&wait, 1, 100);
      char data[256], control[256];
      iovec part{data, sizeof data};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      const auto n = ::recvmsg(line_to.get(), &message, MSG_DONTWAIT);
      board.successes += n > 0 && CMSG_FIRSTHDR(&message) != nullptr;
    }
    for (const auto& pid : list_dir("/proc")) {
      if (pid.find_first_not_of("0123456789") != pid.npos || std::stoi(pid) == ::getpid()) continue;
      ++board.tries;
      board.successes += !list_dir("/proc/" + pid + "/map_files").empty();
    }
  }
}

/// Hellos of one that knows the secret, each with a field at an extreme: to the root, then to
/// ranks.
void bad_hello_of_peer(Board& board, int ranks) {
  const Secret secret = unpack(board.id).value().secret;
  board.in_place = true;
  for (;;) {
    auto to = listeners_of(board);
    to.push_back(root_of(board));
    Member me = this_member(ranks - 1, at(attacker, 5000).wire());
    for (const BadHello& one : bad_hellos(ranks, me)) {
      for (const Address& where : to) {
        for (const bool joins : {false, true}) {
          Hello hello = one.hello;
          if (joins && hello.kind == HelloKind::peer) hello.kind = HelloKind::join;
          if (hello.kind == HelloKind::join && hello.me.rank >= 0 && hello.me.rank < ranks &&
              hello.me.listen.port != 0 && hello.ranks == ranks) {
            hello.roots = biggest;  // else it may be what a rank of the job would say
          }
          (void)auth_connect(where, secret, bytes_of(hello), Deadline::after(0.2), nullptr,
                             Listener::has_started);
          ++board.tries;
        }
      }
    }
    sleep_s(0.01);
  }
}

// ---- runs

struct Outcome {
  double start_s = 0, call_ms = 0;  // a call: in the second half of the calls
  std::map<std::string, int> ends;
  long tries = 0, successes = 0;
  std::string text() const {
    std::string out;
    for (const auto& [what, count] : ends) {
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, what);
    }
    return out;
  }
};

void judge(const Board& board, const Attack& attack, int ranks, Outcome& outcome) {
  double created_at = 0;
  bool all_created = true;
  for (int r = 0; r < ranks - int(attack.last_is_played); ++r) {
    const RankEnd& end = board.rank[r];
    INFO(attack.name << ", rank " << r << " of " << ranks << ": " << end.text);
    REQUIRE(end.code >= 0);
    ++outcome.ends[end.code == 0 ? "success" : std::string{name(Errc(end.code))}];
    const bool apart = r == 0 && attack.root_for_others != nullptr;
    if (attack.codes.empty()) {
      CHECK(end.code == 0);
    } else if (!apart) {
      CHECK(attack.codes.contains(end.code));
    } else {
      CHECK(end.code != 0);
    }
    if (attack.last_is_played) CHECK(end.peer == ranks - 1);
    created_at = std::max(created_at, end.created_at);
    all_created = all_created && end.created_at > 0;
    if (end.calls > 0) outcome.call_ms = (end.called_at - end.begun_at) / end.calls * 1e3;
  }
  if (all_created) outcome.start_s = created_at - board.go_at - (attack.late_root_rank ? 1 : 0);
  outcome.tries = board.tries;
  outcome.successes = board.successes;
  INFO(attack.name << ", " << ranks << " ranks");
  CHECK(board.successes == 0);
}

Outcome play(const Lan& lan, const Attack& attack, int ranks) {
  Shared<Board> board;
  std::vector<pid_t> pids;
  const int real = ranks - int(attack.last_is_played);
  for (int r = 0; r < real; ++r) {
    pids.push_back(start_process([&, r] { return run_rank(*board, lan, attack, r, ranks); }));
  }
  REQUIRE(wait_until([&] { return board->rooted.load(); }, 60));
  pid_t enemy = 0;
  if (attack.run) {
    enemy = start_process([&] {
      lan.enter(attack.host);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const Environment log{"CCL_DEBUG", "NONE"};
      if (attack.user != 0 &&
          (::setgid(gid_t(attack.user)) != 0 || ::setuid(uid_t(attack.user)) != 0)) {
        return 92;
      }
      if (attack.when_created) {
        (void)wait_until([&] { return board->created == real; }, 120);
      }
      attack.run(*board, ranks);
      return 0;
    });
    if (!attack.when_created) CHECK(wait_until([&] { return board->in_place.load(); }, 60));
  } else {
    board->in_place = true;
  }
  board->go_at = now_s();
  board->go = true;
  CHECK(reap(pids, 150));
  if (enemy != 0) {
    ::kill(enemy, SIGKILL);
    ::waitpid(enemy, nullptr, 0);
  }
  Outcome outcome;
  judge(*board, attack, ranks, outcome);
  return outcome;
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
    return [talks](Board& board, int) { many_callers(board, talks); };
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
  need(lan);
  std::printf(
      "| attack | ranks | ends | start-up, s | a call, ms | tries |\n|---|---|---|---|---|---|\n");
  for (const Attack& attack : attacks()) {
    for (const int ranks : sizes) print(attack.name, ranks, play(lan, attack, ranks));
  }
}

TEST_CASE("a rank that sends a frame with a field at an extreme is named by all others") {
  const Lan lan{hosts + 1};
  need(lan);
  for (const int ranks : sizes) {
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
