#pragma once

// Attackers of a job: strangers in its network, another user of a host, and one that knows the
// secret and breaks the rules.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/auth.hpp"
#include "net/crypto/secret.hpp"
#include "net/rendezvous.hpp"
#include "support/attacked_job.hpp"
#include "support/bad_messages.hpp"
#include "support/played_rank.hpp"
#include "support/recording.hpp"
#include <fcntl.h>
#include <poll.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

namespace ccl::test::hostile {

using detail::Fd;

/// Address of the root, or of a rank's listener.
inline Address at(int host, std::uint16_t port) {
  return Address::parse(fmt::format("{}:{}", Lan::address(host), port)).value();
}
inline Address root_of(const Board& board) {
  return Address{unpack(board.id).value().root};
}
inline std::vector<Address> listeners_of(const Board& board) {
  std::vector<Address> all;
  for (int h = 0; h < hosts; ++h) {
    for (int n = 0; n < board.listening[h].count; ++n)
      all.push_back(at(h, board.listening[h].at[n]));
  }
  return all;
}
inline Fd connect_to(const Address& where) {
  auto fd = connect_once(where, Deadline::after(1), nullptr);
  return fd ? *std::move(fd) : Fd{};
}
inline void raise_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, 8192);
  limit.rlim_max = std::max(limit.rlim_cur, limit.rlim_max);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Joins with address and run id, but without the secret.
inline void join_by_words(Board& board, int ranks) {
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

inline constexpr const char* own_address = "10.99.0.4:4712";

/// Listens in place of the root, without the secret.
inline void stand_in(Board& board, int) {
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
        auto* const said = n == 0 ? &said_ : nullptr;
        auto* const answered = n == 0 ? &answered_ : nullptr;
        if (ends[1 + 2 * n].revents != 0 && !move(caller, root, said, false)) over.insert(n);
        if (ends[2 + 2 * n].revents != 0 && !move(root, caller, answered, alters_)) over.insert(n);
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
    return said_;
  }
  /// Handshake of the first caller, once it is complete.
  std::optional<Recording> handshake() {
    const std::lock_guard lock{mutex_};
    return Recording::of(said_, answered_);
  }

 private:
  bool move(const Fd& from, const Fd& to, std::vector<std::byte>* record, bool alters) {
    std::byte some[65536];
    if (!from) return true;
    const ssize_t n = ::recv(from.get(), some, sizeof some, MSG_DONTWAIT);
    if (n <= 0) return n < 0;
    const std::lock_guard lock{mutex_};
    if (record != nullptr) record->insert(record->end(), some, some + n);
    passed_ += std::size_t(n);
    if (alters && passed_ > 400) some[n - 1] ^= std::byte{1};  // after the handshake
    return send_all(to.get(), some, Index(n), soon(), nullptr).has_value();
  }
  const Address to_;
  const bool alters_;
  Fd gate_;
  std::vector<std::pair<Fd, Fd>> lines_;
  std::mutex mutex_;
  std::vector<std::byte> said_, answered_;  // by the first caller, and to it
  std::size_t passed_ = 0;
};

inline void relay(Board& board, bool alters) {
  Passes passes{board, alters};
  board.in_place = true;
  passes.run();
}

/// Relays, and plays what the first caller said to the root and to all ranks, again and again.
inline void replay(Board& board, int) {
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

/// Relays, records the handshake of the first caller, and tries words on it. The words of the job
/// are among them.
inline void try_words(Board& board, int) {
  const std::string address = root_of(board).to_string();
  Passes passes{board, false};
  std::thread passing{[&] { passes.run(); }};
  board.in_place = true;
  std::optional<Recording> record;
  while (!(record = passes.handshake())) sleep_s(0.001);
  for (int n = 0;; ++n) {
    const std::string run = n % 100 == 50 ? words_of_job : fmt::format("run {}", n);
    const Secret guess = unpack(unique_id_at(address, run).value()).value().secret;
    board.successes += record->fitting_tags(guess);
    ++board.tries;
  }
}

/// Callers that say nothing, or that say one byte of a claim each 0.1 s.
inline void many_callers(Board& board, bool talks, int callers) {
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
inline void flood(Board& board, bool claims) {
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

/// Tries of another user of a host. Each counts one try, and a success if it gets anything.
class OtherUser {
 public:
  OtherUser(Board& board, int ranks) : board_{board}, ranks_{ranks} {}

  /// Asks each Unix socket for a descriptor.
  void ask_unix_sockets() {
    std::ifstream table{"/proc/thread-self/net/unix"};
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
      count(n > 0 && CMSG_FIRSTHDR(&message) != nullptr, "a descriptor");
    }
  }
  /// Calls the ports of the root and of all ranks, with another secret and with garbage.
  void call_ports() {
    auto to = listeners_of(board_);
    to.push_back(root_of(board_));
    for (const Address& where : to) {
      const Hello hello{HelloKind::join, ranks_, 1, 0,
                        this_member(ranks_ - 1, at(attacker, 5000).wire())};
      const auto in = auth_connect(where, random_secret(), bytes_of(hello), Deadline::after(0.3),
                                   nullptr, Listener::has_started);
      count(in.has_value(), "a connection");
      const Fd line = connect_to(where);
      if (!line) continue;
      const std::array<char, 4096> garbage{};
      (void)send_all(line.get(), garbage.data(), Index(garbage.size()), Deadline::after(0.2),
                     nullptr);
      // The greeting comes; more would be an answer.
      std::byte answer[sizeof(Greeting) + 1];
      count(recv_all(line.get(), answer, Index(sizeof answer), Deadline::after(0.2), nullptr)
                .has_value(),
            "an answer");
    }
  }
  /// Looks into each rank's process, and tries to end it.
  void look_at_processes() {
    for (int r = 0; r < ranks_; ++r) {
      const pid_t pid = board_.rank[r].pid;
      if (pid == 0) continue;
      const std::string at = fmt::format("/proc/{}/", pid);
      for (const char* file : {"environ", "mem", "maps", "syscall", "stack"}) {
        const Fd opened{::open((at + file).c_str(), O_RDONLY | O_CLOEXEC)};
        char byte = 0;
        count(opened && ::read(opened.get(), &byte, 1) == 1, "a file of /proc");
      }
      const Fd memory{::open((at + "mem").c_str(), O_RDWR | O_CLOEXEC)};
      count(bool(memory), "memory");
      for (const char* folder : {"fd", "map_files"}) {
        count(!list_dir(at + folder).empty(), "a folder of /proc");
      }
      for (int fd = 0; fd < 64; ++fd) {
        const Fd taken{::open(fmt::format("{}fd/{}", at, fd).c_str(), O_RDONLY | O_NONBLOCK)};
        count(bool(taken), "a descriptor of /proc");
      }
      char copy[8];
      iovec to{copy, sizeof copy}, from{&board_, sizeof copy};
      count(::process_vm_readv(pid, &to, 1, &from, 1, 0) > 0, "a copy of memory");
      count(::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0, "a traced process");
      count(::kill(pid, SIGTERM) == 0, "an ended process");
    }
  }
  /// Opens the segments that have names.
  void open_segments() {
    for (const std::string& name : own_segments()) {
      const Fd segment{::open(("/dev/shm/" + name).c_str(), O_RDONLY | O_CLOEXEC)};
      count(bool(segment), "a segment");
    }
  }

 private:
  void count(bool success, const char* what) {
    ++board_.tries;
    if (success && board_.successes++ == 0) {
      std::snprintf(board_.success, sizeof board_.success, "%s", what);
    }
  }
  Board& board_;
  const int ranks_;
};

/// Another user of a host: tries its Unix sockets, its ports, its processes and its segments.
inline void other_user(Board& board, int ranks) {
  OtherUser user{board, ranks};
  board.in_place = true;
  for (;;) {
    user.ask_unix_sockets();
    user.call_ports();
    user.look_at_processes();
    user.open_segments();
  }
}

/// Hellos of one that knows the secret, each with a field at an extreme: to the root, then to
/// ranks.
inline void bad_hello_of_peer(Board& board, int ranks) {
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

}  // namespace ccl::test::hostile
