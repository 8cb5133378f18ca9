#include "group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "launch.hpp"
#include "player.hpp"
#include "report.hpp"
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ccl::perf {
namespace {

constexpr int died_early = 5;
constexpr pid_t ended = 0;

Error system_error(const char* what) {
  Error error;
  error.code = Errc::system;
  error.what = fmt::format("{} ({})", what, std::strerror(errno));
  error.os_code = errno;
  return error;
}

/// Makes this child process end with its parent.
void stay_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(died_early);
}

/// Waits until the process has ended or the time is over.
bool reap(pid_t process, double within_s, int& how) {
  const double until = now_s() + within_s;
  for (;;) {
    const pid_t ended = ::waitpid(process, &how, WNOHANG);
    if (ended == process) return true;
    if ((ended < 0 && errno != EINTR) || now_s() > until) return false;
    ::usleep(2000);
  }
}

/// Returns the remaining time in milliseconds, for poll(2).
int left_ms(double until) {
  return std::max(0, int((until - now_s()) * 1e3));
}

}  // namespace

Result<std::unique_ptr<Group>> Group::start(const Options& options, const Mode& mode, int ranks,
                                            const std::string& nccl_library) {
  std::unique_ptr<Group> group{new Group{options, mode, ranks}};
  CCL_TRY(group->rendezvous_, Rendezvous::create(ranks));
  CCL_CHECK(group->fork_ranks(nccl_library));
  return group;
}

Result<void> Group::fork_ranks(const std::string& nccl_library) {
  std::vector<int> theirs;
  for (int rank = 0; rank < ranks_; ++rank) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
      return fail(system_error("no sockets to talk to the ranks"));
    }
    sockets_.push_back(pair[0]);
    theirs.push_back(pair[1]);
  }
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const bool threads = options_.launch == Launch::threads;
  for (int first = 0; first < ranks_; first += threads ? ranks_ : 1) {
    const pid_t child = ::fork();
    if (child < 0) return fail(system_error("cannot start a rank"));
    if (child == 0) {
      stay_with(parent);
      for (const int socket : sockets_) ::close(socket);
      for (const auto& [name, value] : mode_.environment) {
        ::setenv(name.c_str(), value.c_str(), 1);
      }
      const int ctas = options_.ctas.front();
      if (ctas != 0 && !(mode_.nccl && ctas == Options::all_ctas)) {
        ::setenv(mode_.nccl ? "NCCL_MAX_CTAS" : "CCL_MAX_CTAS", std::to_string(ctas).c_str(), 1);
      }
      if (!mode_.nccl && !options_.transport.empty()) {
        ::setenv("CCL_TRANSPORT", options_.transport.c_str(), 1);
      }
      const auto position = [&](int rank) {
        return Position{options_, mode_, nccl_library, *rendezvous_, rank, ranks_, theirs[rank]};
      };
      if (threads) {
        std::vector<std::thread> players;
        for (int rank = 0; rank < ranks_; ++rank) {
          players.emplace_back([&, rank] { play(position(rank)); });
        }
        for (auto& player : players) player.join();
      } else {
        for (int rank = 0; rank < ranks_; ++rank) {
          if (rank != first) ::close(theirs[rank]);
        }
        take_host(options_, first, ranks_);
        play(position(first));
      }
      std::fflush(nullptr);
      ::_exit(0);  // exit handlers of libraries can hang
    }
    processes_.push_back(child);
  }
  for (const int socket : theirs) ::close(socket);
  return {};
}

Group::~Group() {
  kill();
  for (const int socket : sockets_) ::close(socket);
}

void Group::kill() {
  std::erase(processes_, ended);
  for (const pid_t process : processes_) ::kill(process, SIGKILL);
  for (const pid_t process : processes_) {
    int how = 0;
    // The driver can take a while to free a GPU's memory.
    if (!reap(process, 30, how)) {
      fmt::print(stderr, "ccl_perf: process {} of {} does not end\n", process, mode_.name);
    }
  }
  processes_.clear();
}

std::string Group::ending(int rank) {
  const bool threads = options_.launch == Launch::threads;
  const auto at = std::size_t(threads ? 0 : rank);
  if (at >= processes_.size() || processes_[at] == ended) return "its process has ended";
  int how = 0;
  if (!reap(processes_[at], 5, how)) return "it closed its connection";
  processes_[at] = ended;
  if (WIFSIGNALED(how)) {
    return fmt::format("its process ended by signal {} ({})", WTERMSIG(how),
                       strsignal(WTERMSIG(how)));
  }
  return fmt::format("its process ended with status {}", WEXITSTATUS(how));
}

Result<std::vector<Reply>> Group::join() {
  Order order;
  order.verb = Order::Verb::invite;
  CCL_TRY(const auto invited, ask(order, 1));
  order.verb = Order::Verb::join;
  order.invitation = invited[0].invitation;
  return ask(order, ranks_);
}

Result<Explained> Group::explain() {
  Order order;
  order.verb = Order::Verb::explain;
  CCL_TRY(const auto replies, ask(order));
  std::vector<RankPhases> ranks;
  for (const Reply& reply : replies) ranks.push_back(reply.phases);
  return explained_of(ranks);
}

Result<std::vector<Reply>> Group::ask(const Order& order) {
  return ask(order, ranks_);
}

Result<std::vector<Reply>> Group::ask(const Order& order, int ranks) {
  const auto refuse = [&](Errc code, int rank, const std::string& what) {
    Error error;
    error.code = code;
    error.what = fmt::format("{}: {}", mode_.name, what);
    error.rank = rank;
    return error;
  };
  std::vector<pollfd> waiting;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!send_message(sockets_[rank], &order, sizeof order)) {
      return fail(refuse(Errc::peer_lost, rank, ending(rank)));
    }
    waiting.push_back({sockets_[rank], POLLIN, 0});
  }
  std::vector<Reply> replies(std::size_t(ranks), Reply{});
  std::optional<Error> failure;
  // The deadlines of the ranks come first, because their errors have more details.
  const double wait_limit_s = options_.timeout_s + std::min(options_.timeout_s, 10.);
  double until = now_s() + wait_limit_s;
  for (int left = ranks; left > 0;) {
    const int ready = ::poll(waiting.data(), nfds_t(waiting.size()), left_ms(until));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    for (int rank = 0; rank < ranks; ++rank) {
      pollfd& at = waiting[rank];
      if (at.fd < 0 || at.revents == 0) continue;
      at.fd = -1;  // answered
      --left;
      Reply& reply = replies[rank];
      std::optional<Error> wrong;
      if (!receive_message(sockets_[rank], &reply, sizeof reply)) {
        wrong = refuse(Errc::peer_lost, rank, ending(rank));
      } else if (!reply.ok) {
        wrong = refuse(reply.code, rank, reply.text);
        wrong->os_code = reply.os_code;
        wrong->peer = reply.peer;
      }
      if (!wrong || failure) continue;
      failure = wrong;
      until = std::min(until, now_s() + 5);  // the other ranks can be waiting for this one
    }
  }
  if (failure) return fail(*failure);
  std::string late;
  for (int rank = 0; rank < ranks; ++rank) {
    if (waiting[rank].fd >= 0) late += fmt::format("{}{}", late.empty() ? "" : ", ", rank);
  }
  if (late.empty()) return replies;
  return fail(refuse(Errc::timed_out, -1,
                     fmt::format("no answer within {:.0f} s from rank {} (it hangs, or needs more "
                                 "time: see --timeout)",
                                 wait_limit_s, late)));
}

Result<void> run_apart(double deadline_s, void* data, std::size_t bytes,
                       const std::function<void()>& body) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return fail(system_error("no sockets"));
  }
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return fail(system_error("cannot start a process"));
  if (child == 0) {
    stay_with(parent);
    ::close(pair[0]);
    body();
    (void)!send_message(pair[1], data, bytes);
    ::_exit(0);
  }
  ::close(pair[1]);
  pollfd waiting{pair[0], POLLIN, 0};
  const double until = now_s() + deadline_s;
  int ready;
  do {
    ready = ::poll(&waiting, 1, left_ms(until));
  } while (ready < 0 && errno == EINTR);
  Result<void> result;
  if (ready <= 0) {
    result = fail(Errc::timed_out, fmt::format("no answer within {:.0f} s", deadline_s));
  } else {
    result = receive_message(pair[0], data, bytes);
  }
  ::close(pair[0]);
  ::kill(child, SIGKILL);
  int how = 0;
  (void)reap(child, 10, how);
  return result;
}

}  // namespace ccl::perf
