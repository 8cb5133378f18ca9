#include "launch.hpp"

#include <ccl/comm/unique_id.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "report.hpp"
#include "rival.hpp"
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ccl::perf {
namespace {

constexpr int failed = 3;
constexpr double grace_s = 15;  // seconds for the remaining ranks after one has failed
constexpr double no_limit_s = 1e300;
using Body = std::function<Result<int>(const Communicator&)>;

int status_of(const Result<int>& result) {
  if (result) return *result;
  fmt::print(stderr, "ccl_perf: {}\n", result.error().message());
  return failed;
}

Config config() {
  Config config;
  // a benchmark must not wait without limit
  if (!detail::setting_given("TIMEOUT")) config.timeout_s = 60;
  config.device = -1;
  config.name = "ccl_perf";
  return config;
}

Result<int> run(Result<Communicator> comm, const Body& body) {
  if (!comm) return fail(std::move(comm).error());
  CCL_TRY(const int status, body(*comm));
  CCL_CHECK(comm->finalize());
  return status;
}

/// Runs a rank that is a process. The first rank creates the id and sends it to the others through
/// a pipe, which closes when it dies.
Result<int> run_child(int rank, int ranks, const int (&pipe)[2], const Body& body) {
  UniqueId id;
  if (rank == 0) {
    CCL_TRY(id, create_unique_id());
    for (int i = 1; i < ranks; ++i) {
      if (::write(pipe[1], &id, sizeof id) != ssize_t(sizeof id)) {
        return fail(Errc::system,
                    fmt::format("cannot tell rank {} the id ({})", i, std::strerror(errno)));
      }
    }
  }
  ::close(pipe[1]);
  if (rank != 0 && ::read(pipe[0], &id, sizeof id) != ssize_t(sizeof id)) {
    return fail(Errc::peer_lost, fmt::format("rank {} got no id (rank 0 ended before)", rank));
  }
  ::close(pipe[0]);
  return run(Communicator::create(id, rank, ranks, config()), body);
}

int fork_ranks(const Options& options, const Body& body) {
  const int ranks = options.ranks;
  int pipe[2];
  if (::pipe(pipe) != 0) {
    fmt::print(stderr, "ccl_perf: no pipe ({})\n", std::strerror(errno));
    return failed;
  }
  std::fflush(nullptr);
  // some launchers leave it ignored, which would discard the status of ranks
  ::signal(SIGCHLD, SIG_DFL);
  const pid_t parent = ::getpid();
  std::vector<pid_t> children;
  int status = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) {
      fmt::print(stderr, "ccl_perf: cannot start rank {} ({})\n", rank, std::strerror(errno));
      for (const pid_t c : children) ::kill(c, SIGKILL);
      status = failed;
      break;
    }
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // ranks end with their parent
      if (::getppid() != parent) ::_exit(failed);
      take_host(options, rank, ranks);
      const int mine = status_of(run_child(rank, ranks, pipe, body));
      std::fflush(nullptr);
      ::_exit(mine);
    }
    children.push_back(child);
  }
  ::close(pipe[0]);
  ::close(pipe[1]);
  double until = 0;  // time at which the remaining ranks are killed; 0: no failure
  for (std::size_t left = children.size(); left > 0; --left) {
    int how = 0;
    pid_t ended;
    while ((ended = ::waitpid(-1, &how, until == 0 ? 0 : WNOHANG)) <= 0) {
      if (until == 0) continue;  // interrupted
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
      if (now_s() < until) continue;
      // A rank that ends before it connects to another one is not reported to that one.
      fmt::print(stderr, "ccl_perf: ended {} ranks, which had not followed within {:.0f} s\n", left,
                 grace_s);
      for (const pid_t c : children) {
        if (c > 0) ::kill(c, SIGKILL);
      }
      until = no_limit_s;
    }
    const auto who = std::find(children.begin(), children.end(), ended);
    if (who == children.end()) {  // child of the program that ran in this process before exec
      ++left;
      continue;
    }
    const bool was_ended = until == no_limit_s;
    if (WIFSIGNALED(how) && !was_ended) {
      fmt::print(stderr, "ccl_perf: rank {} ended by signal {} ({})\n", who - children.begin(),
                 WTERMSIG(how), strsignal(WTERMSIG(how)));
    }
    *who = 0;
    const int its = WIFEXITED(how) ? WEXITSTATUS(how) : failed;
    if (its != 0 && until == 0) until = now_s() + grace_s;
    status = std::max(status, its);
  }
  return status;
}

int run_threads(int ranks, const Body& body) {
  auto comms = Communicator::create_all(ranks, config());
  if (!comms) return status_of(fail(std::move(comms).error()));
  std::vector<int> status(std::size_t(ranks), 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { status[rank] = status_of(run((*comms)[rank], body)); });
  }
  for (auto& thread : threads) thread.join();
  return *std::max_element(status.begin(), status.end());
}

/// Runs the ranks of the rival's launcher, which are connected already and share the id that way.
int run_beside_rival(const Body& body) {
  struct {
    UniqueId id;
    bool made = false;
  } root;
  if (rival::rank() == 0) {
    if (auto id = create_unique_id()) {
      root = {*id, true};
    } else {
      status_of(fail(std::move(id).error()));
    }
  }
  rival::share(&root, sizeof root);
  if (!root.made) return failed;
  return status_of(
      run(Communicator::create(root.id, rival::rank(), rival::ranks(), config()), body));
}

}  // namespace

void take_host(const Options& options, int rank, int ranks) {
  if (options.hosts == 0) return;
  const std::string host = "host" + std::to_string(rank * options.hosts / ranks);
  for (const char* const name : {"CCL_HOSTID", "NCCL_HOSTID"}) ::setenv(name, host.c_str(), 1);
}

int launch(const Options& options, const Body& body) {
  if (!options.transport.empty()) ::setenv("CCL_TRANSPORT", options.transport.c_str(), 1);
  if (options.explain) ::setenv("CCL_TRACE_PHASES", "1", 1);
  switch (options.launch) {
    case Launch::processes:
      return fork_ranks(options, body);
    case Launch::threads:
      return run_threads(options.ranks, body);
    case Launch::environment:
      break;
  }
  if (rival::name() != nullptr) return run_beside_rival(body);
  return status_of(run(Communicator::from_env(config()), body));
}

}  // namespace ccl::perf
