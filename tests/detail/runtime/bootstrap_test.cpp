#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/bootstrap.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <thread>

#include "net/auth.hpp"
#include "net/rendezvous.hpp"
#include "net/socket.hpp"
#include "support/bootstrap_ranks.hpp"
#include "support/catch.hpp"
#include <sys/wait.h>

using namespace ccl;
using namespace ccl::test;

TEST_CASE("ranks are divided among roots as NCCL does") {
  CHECK(detail::root_of_rank(3, 8, 2) == 0);
  CHECK(detail::root_of_rank(4, 8, 2) == 1);
  for (int ranks = 1; ranks < 20; ++ranks) {
    for (int roots = 1; roots <= ranks; ++roots) {
      for (int r = 0; r < ranks; ++r) {
        const int root = detail::root_of_rank(r, ranks, roots);
        CHECK(r >= detail::first_rank_of_root(root, ranks, roots));
        CHECK((root + 1 == roots || r < detail::first_rank_of_root(root + 1, ranks, roots)));
      }
    }
  }
}

TEST_CASE("ranks join, gather, talk, wait and leave") {
  const Interfaces lo;
  const int ranks = GENERATE(1, 2, 3, 8);
  const int roots = GENERATE(1, 2, 3);
  if (roots > ranks) return;
  const auto ids = some_ids(roots);
  all_ok(on_ranks(ranks, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, ranks, {20, nullptr}));
    EXPECT(b->rank() == rank && b->ranks() == ranks);
    for (int i = 0; i < 5; ++i) CCL_CHECK(gather_works(*b));
    std::vector<char> big(static_cast<size_t>(ranks) * 300000, char(rank));
    CCL_CHECK(b->all_gather(big.data(), 300000));
    for (int r = 0; r < ranks; ++r) EXPECT(big[size_t(r) * 300000 + 299999] == char(r));
    // Messages to all ranks, with tags and peers in an order that no rank waits for.
    for (int r = 0; r < ranks; ++r) {
      for (int tag = 0; tag < 3; ++tag) {
        const int value[2] = {rank * 10 + tag, 7};
        CCL_CHECK(b->send(r, std::uint64_t(tag), value, tag == 0 ? 4 : 8));
      }
    }
    for (int r = ranks - 1; r >= 0; --r) {
      for (int tag = 2; tag >= 0; --tag) {
        CCL_TRY(const auto message, b->recv(r, std::uint64_t(tag)));
        int value = 0;
        EXPECT(message.size() == (tag == 0 ? 4 : 8));
        std::memcpy(&value, message.data(), 4);
        EXPECT(value == r * 10 + tag);
      }
    }
    for (int i = 0; i < 3; ++i) CCL_CHECK(b->barrier());
    CCL_CHECK(b->all_gather_hosts(big.data(), 300000));
    EXPECT(b->place(ranks - 1).rank == ranks - 1 && b->place(0).pid == ::getpid());
    CCL_CHECK(b->finalize());
    const auto late = b->barrier();
    EXPECT(!late && late.error().code == Errc::invalid_usage);
    return b->status().result();
  }));
}

TEST_CASE("a split that fails names a rank to its child by the child's number") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  constexpr int ranks = 4;
  std::array<detail::Status, ranks> of_child;
  // Accepts connections and never greets, as the acceptor of a stopped process.
  const auto any = detail::net::Address::parse("127.0.0.1:0").value();
  const detail::Fd silent = detail::net::listen_at(any).value();
  const auto errors = on_ranks(ranks, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, ranks, {20, nullptr}));
    if (rank != 0) {
      const auto child = b->split(0, -rank, {1.5, &of_child[size_t(rank)]});
      return child ? Result<void>{} : fail(child.error());
    }
    struct Entry {
      std::int32_t color, key;
      std::array<std::byte, 16> random;
    };
    std::vector<Entry> entries(ranks);
    CCL_CHECK(b->all_gather(entries.data(), sizeof(Entry), {}, {"split"}));
    std::vector<detail::net::Member> members(ranks);
    members[0] = detail::net::this_member(3, detail::net::bound_address(silent.get())->wire());
    CCL_CHECK(b->all_gather(members.data(), sizeof members[0], {}, {"split"}));
    return b->barrier();
  });
  for (int rank = 1; rank < ranks; ++rank) {
    INFO(rank << ": " << errors[size_t(rank)].message());
    CHECK(errors[size_t(rank)].peer == 0);
    REQUIRE_FALSE(of_child[size_t(rank)].ok());
    INFO(of_child[size_t(rank)].result().error().message());
    CHECK(of_child[size_t(rank)].result().error().peer == 3);
  }
}

TEST_CASE("ranks join over IPv6, and when one is late") {
  const Interfaces lo;
  ::setenv("CCL_SOCKET_FAMILY", "AF_INET6", 1);
  const auto ids = some_ids(1);
  all_ok(on_ranks(3, [&](int rank) -> Result<void> {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 3, {20, nullptr}));
    CCL_CHECK(gather_works(*b));
    return b->finalize();
  }));
  ::unsetenv("CCL_SOCKET_FAMILY");
}

TEST_CASE("split makes communicators of their own") {
  const Interfaces lo;
  const auto ids = some_ids(2);
  std::array<std::array<std::byte, 16>, 6> secrets;
  all_ok(on_ranks(6, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 6, {20, nullptr}));
    // Ranks 0 2 4 in reverse order; 1 3 form another; 5 has no part.
    CCL_TRY(auto half, b->split(rank == 5 ? -1 : rank % 2, -rank));
    EXPECT((half == nullptr) == (rank == 5));
    if (half) {
      EXPECT(half->ranks() == (rank % 2 == 0 ? 3 : 2));
      EXPECT(half->rank() == (rank % 2 == 0 ? (4 - rank) / 2 : (3 - rank) / 2));
      EXPECT(half->secret() != b->secret());
      secrets[size_t(rank)] = half->secret();
      CCL_CHECK(gather_works(*half));
      CCL_TRY(auto alone, half->split(half->rank(), 0));
      EXPECT(alone->ranks() == 1);
      CCL_CHECK(alone->finalize());
    }
    CCL_CHECK(gather_works(*b));
    CCL_CHECK(b->finalize());  // the parent may go first
    if (half) {
      CCL_CHECK(gather_works(*half));
      CCL_CHECK(half->finalize());
    }
    return {};
  }));
  CHECK(secrets[0] == secrets[4]);
  CHECK(secrets[1] == secrets[3]);
  CHECK(secrets[0] != secrets[1]);
}

namespace {

// The TCP ports at which this process listens.
std::vector<int> listening_ports() {
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ec;
    const auto target = std::filesystem::read_symlink(entry.path(), ec).string();
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  std::vector<int> ports;
  std::ifstream table{"/proc/self/net/tcp"};
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream in{line};
    std::string field[10];
    for (auto& f : field) in >> f;
    if (field[3] != "0A" || !sockets.contains(field[9])) continue;
    ports.push_back(std::stoi(field[1].substr(field[1].find(':') + 1), nullptr, 16));
  }
  return ports;
}

}  // namespace

TEST_CASE("strangers at every port disturb nobody") {
  const Interfaces lo;
  const std::string file = "strangers." + std::to_string(::getpid()) + ".log";
  ::setenv("CCL_DEBUG_FILE", file.c_str(), 1);
  log_reload();
  const auto ids = some_ids(2);
  std::atomic<bool> over{false};
  std::atomic<int> visits{0};
  std::thread scanner{[&] {
    std::mt19937 random{1};
    std::deque<detail::Fd> held;  // half-open, for ever
    while (!over) {
      for (const int port : listening_ports()) {
        detail::net::Address at = detail::net::Address::parse("127.0.0.1:0").value();
        at.set_port(port);
        auto fd = detail::net::connect_once(at, detail::net::Deadline::after(1), nullptr);
        if (!fd) continue;
        ++visits;
        std::string noise(random() % 200, 0);
        for (char& c : noise) c = char(random());
        if (visits % 3 == 0) noise = "ccl\2" + noise;
        (void)detail::net::send_all(fd->get(), noise.data(), Index(noise.size()),
                                    detail::net::Deadline::after(1), nullptr);
        held.push_back(std::move(*fd));
        if (held.size() > 300) held.pop_front();
      }
    }
  }};
  // Gives the strangers time for so many visits, in all.
  const auto scanned = [&](int so_many) {
    for (int i = 0; i < 20'000 && visits < so_many; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  all_ok(on_ranks(6, [&](int rank) -> Result<void> {
    scanned(20 * rank);
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 6, {60, nullptr}));
    for (int i = 0; i < 3; ++i) {
      CCL_CHECK(gather_works(*b));
      CCL_CHECK(b->send((rank + 2) % 6, 1, &rank, 4));
      CCL_CHECK(b->recv((rank + 4) % 6, 1));
      scanned(visits + 10);
    }
    CCL_TRY(auto child, b->split(rank % 2, 0));
    CCL_CHECK(gather_works(*child));
    CCL_CHECK(child->finalize());
    return b->finalize();
  }));
  over = true;
  scanner.join();
  ::unsetenv("CCL_DEBUG_FILE");
  log_reload();
  std::ifstream log{file};
  std::string line;
  int named = 0;
  while (std::getline(log, line)) {
    named += line.find("refused a connection from 127.0.0.1:") != line.npos ? 1 : 0;
  }
  std::remove(file.c_str());
  CHECK(visits > 100);
  // The first 20 of this process, some of which earlier cases have had, then only each doubling.
  CHECK(named >= 15);
  CHECK(named < 20 + 32);
}

TEST_CASE("who calls a rank and gives up before it is let in is not taken for a rank that died") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  all_ok(on_ranks(2, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 2, {20, nullptr}));
    CCL_CHECK(b->barrier());
    if (rank == 1) {
      int let_in = 0;
      for (int round = 0; round < 5; ++round) {
        const std::vector<int> ports = listening_ports();
        for (std::size_t n = 0; n < ports.size() * ports.size(); ++n) {
          // One of the pairs is the other rank's address and this rank's own.
          detail::net::Address at = detail::net::Address::parse("127.0.0.1:0").value(), own = at;
          at.set_port(ports[n % ports.size()]);
          own.set_port(ports[n / ports.size()]);
          const detail::net::Hello hello{detail::net::HelloKind::peer, 2, 0, 0,
                                         detail::net::this_member(1, own.wire())};
          // Closed at once, as by a rank that has requested a status and has no more time.
          const auto fd = detail::net::auth_connect(at, b->secret(), detail::net::bytes_of(hello),
                                                    detail::net::Deadline::after(20), nullptr);
          let_in += fd ? 1 : 0;
        }
      }
      EXPECT(let_in >= 5);
    }
    CCL_CHECK(gather_works(*b));
    return b->finalize();
  }));
}

TEST_CASE("no thread and no descriptor is left") {
  const Interfaces lo;
  const auto count = [](const char* folder) {
    const std::filesystem::directory_iterator begin{folder};
    return std::distance(begin, std::filesystem::directory_iterator{});
  };
  const auto fixed_at = [&](const char* folder, std::ptrdiff_t n) {
    for (int i = 0; i < 1000; ++i) {  // connections that wait for the other end's goodbye
      if (count(folder) <= n) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  };
  // In a process of its own: roots of earlier cases still wait in this one for ranks that never
  // connect.
  const pid_t child = ::fork();
  if (child == 0) {
    const auto files = count("/proc/self/fd");
    const auto threads = count("/proc/self/task");  // a sanitizer may have one of its own
    const auto ids = some_ids(1);
    if (count("/proc/self/task") != threads + 1) ::_exit(1);
    const auto errors = on_ranks(3, [&](int rank) -> Result<void> {
      CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 3, {20, nullptr}));
      CCL_CHECK(b->send((rank + 1) % 3, 5, &rank, 4));
      CCL_CHECK(b->recv((rank + 2) % 3, 5));
      CCL_TRY(auto child, b->split(0, 0));
      CCL_CHECK(child->finalize());
      return rank == 1 ? Result<void>{} : b->finalize();  // one leaves in anger
    });
    if (errors[1].code != Errc::ok || errors[0].code != Errc::aborted) ::_exit(2);
    if (!fixed_at("/proc/self/task", threads)) ::_exit(3);
    ::_exit(count("/proc/self/fd") == files ? 0 : 4);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK((WIFEXITED(status) ? WEXITSTATUS(status) : 99) == 0);
}

TEST_CASE("messages that nobody receives are an error before they use up memory") {
  const auto alone = detail::Bootstrap::join({}, 0, 1).value();
  const std::vector<std::byte> text(size_t{1} << 26);
  int sent = 0;
  Result<void> last;
  while (sent < 20 && (last = alone->send(0, 1, text.data(), Index(text.size())))) ++sent;
  CHECK(sent == 4);  // 256 MiB, and some bytes for each
  REQUIRE_FALSE(last);
  CHECK(last.error().code == Errc::out_of_memory);
  CHECK(last.error().peer == 0);
  for (; sent > 0; --sent) CHECK(alone->recv(0, 1)->size() == text.size());
  CHECK(alone->send(0, 1, text.data(), Index(text.size())));
}

TEST_CASE("each tag may have a function that takes its messages") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  std::string taken;  // of rank 0, written under the engine's lock
  all_ok(on_ranks(2, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 2, {20, nullptr}));
    const auto listen = [&](std::uint64_t tag, const char* name) {
      b->set_message_listener(tag, [&taken, name](int peer, std::span<const std::byte> text) {
        taken += name + std::to_string(peer) + std::to_string(text.size()) + " ";
      });
    };
    if (rank == 0) listen(5, "five"), listen(6, "six");
    CCL_CHECK(b->barrier());
    for (const std::uint64_t tag : {6, 5, 7}) {
      if (rank == 1) CCL_CHECK(b->send(0, tag, "text", 4));
    }
    if (rank == 0) {
      CCL_CHECK(b->recv(1, 7));
      EXPECT(taken == "six14 five14 ");
      b->set_message_listener(5, {});
    }
    CCL_CHECK(b->barrier());
    for (const std::uint64_t tag : {6, 5}) {
      if (rank == 1) CCL_CHECK(b->send(0, tag, "text", 4));
    }
    if (rank == 0) {
      CCL_CHECK(b->recv(1, 5));
      EXPECT(taken == "six14 five14 six14 ");
    }
    return b->finalize();
  }));
}

TEST_CASE("readers of statuses outlive a bootstrap that ended well, and find no status in it") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  all_ok(on_ranks(3, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 3, {60, nullptr}));
    std::atomic<bool> gone{false}, used{false};
    b->set_rank_status([&](std::string_view) {
      used = used || gone;  // a status of what may be destroyed
      return std::vector<std::byte>(1);
    });
    CCL_CHECK(b->barrier());
    const auto read = b->status_reader();
    for (const auto& status : read(30)) EXPECT(status.size() == 1);
    CCL_CHECK(b->barrier());
    CCL_CHECK(b->finalize());
    b.reset();
    gone = true;
    for (const auto& status : read(0)) EXPECT(status.empty());
    EXPECT(!used);
    return {};
  }));
}
