#include <ccl/comm/launcher.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/exceptions.hpp"
#include "base/io/os_error.hpp"
#include "bootstrap/launch/job_secret.hpp"
#include "bootstrap/launch/known_id.hpp"
#include "bootstrap/launch/pmix.hpp"
#include "net/crypto/sha256.hpp"
#include "net/socket.hpp"
#include "settings/init_limit.hpp"
#include "settings/report.hpp"

namespace ccl::detail {
namespace {

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}
bool contains(const char* name) {
  return !env(name).empty();
}

Result<int> number(const char* name) {
  const std::string text = env(name);
  std::string_view digits = text;
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  int n = 0;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (ec != std::errc{} || end != digits.data() + digits.size() || n < 0) {
    return fail(
        Errc::bad_setting,
        fmt::format("{}=\"{}\" is no number from 0 to {} (a launcher sets it); unset it to run "
                    "alone",
                    name, text, std::numeric_limits<int>::max()));
  }
  return n;
}

// Environment variables of one launcher.
struct LauncherVariables {
  const char* launcher;
  const char *rank, *ranks, *local_rank;
  const char *job, *step;  // together they identify the job
};
constexpr LauncherVariables dialects[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", ""},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "PMIX_NAMESPACE", ""},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_JOBID", ""},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_ID"},
};

// Slurm's variables make a batch script or an interactive shell rank 0. Only ranks of srun have a
// step.
bool outside_of_srun() {
  return env("SLURM_PROCID") == "0" && !contains("SLURM_STEP_ID") && !contains("SLURM_STEPID");
}

// Under torchrun the agent's store listens at MASTER_PORT, so ccl uses the next port.
Result<std::string> master_address() {
  CCL_TRY(int port, number("MASTER_PORT"));
  if (env("TORCHELASTIC_USE_AGENT_STORE") == "True") ++port;
  const std::string host = env("MASTER_ADDR");
  const bool v6 = host.find(':') != host.npos && host.front() != '[';
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<LaunchEnvironment> checked(LaunchEnvironment launch) {
  if (launch.ranks >= 1 && launch.rank >= 0 && launch.rank < launch.ranks) return launch;
  return fail(Errc::bad_setting,
              fmt::format("{} says that this is rank {} of {} (ranks are 0 to size - 1, and there "
                          "is at least one); correct its variables",
                          launch.launcher, launch.rank, launch.ranks));
}

/// Returns the random secret that rank 0 hands out through PMIx, or nothing without PMIx.
/// Collective. Under torchrun, PMIx has started torchrun's agents and not the ranks. Other channels
/// protect nothing: torchrun's store answers every caller in clear text, and the pipe of PMI serves
/// only the process's first client, which is MPI.
Result<std::optional<std::string>> pmix_secret(const LaunchEnvironment& launch) {
  std::optional<std::string> out;
  if (!contains("PMIX_RANK") || launch.launcher == "torchrun") return out;
  CCL_TRY(const auto given, given_secret());
  if (given) return out;  // it counts first, and PMIx is not needed
  const auto client = Pmix::instance();
  if (!client) {
    // Other ranks may have the secret: without it, this one would only be refused.
    if (client.error().code == Errc::timed_out) return fail(client.error());
    log_info(LogPart::init, "no secret comes through PMIx ({})", client.error().what);
    return out;
  }
  static std::atomic<int> calls{0};  // see below: PMIx caches values
  const std::string key = fmt::format("ccl.secret.{}", calls++);
  std::array<std::byte, 32> random;
  net::fill_random(random);
  std::string mine;
  for (const std::byte b : random) mine += fmt::format("{:02x}", unsigned(b));
  CCL_TRY(out, (*client)->from_first(key, mine));
  return out;
}

constexpr double last_try_s = 1;  // for a look-up that begins at the end of the limit

/// Calls `id_with_secret` until the name in `address` can be resolved, at most CCL_INIT_TIMEOUT.
Result<UniqueId> id_at(const std::string& address, const std::string& job_key,
                       const std::optional<std::string>& secret) {
  CCL_TRY(const double wait_limit_s, init_limit_s());
  const auto deadline = net::Deadline::after(wait_limit_s);
  for (bool reported = false;; reported = true) {
    auto made = id_with_secret(address, job_key, secret, std::max(deadline.left_s(), last_try_s));
    if (made || made.error().code != Errc::network) return made;
    if (deadline.passed()) {
      Error error = std::move(made).error();
      error.code = Errc::bad_setting;
      error.what += fmt::format(" (asked for {} s: CCL_INIT_TIMEOUT)", wait_limit_s);
      return fail(std::move(error));
    }
    if (!reported) {
      log_warn(LogPart::init, "{}; it is asked for again until CCL_INIT_TIMEOUT, {} s, has passed",
               made.error().what, wait_limit_s);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

/// The error of an address names the variables that it comes from.
cuda::std::unexpected<Error> bad_address(const std::string& variables, Error error) {
  if (error.code == Errc::invalid_argument) error.code = Errc::bad_setting;
  error.what = fmt::format("{}: {}", variables, error.what);
  return fail(std::move(error));
}

Result<UniqueId> rendezvous_id(const LaunchEnvironment& launch) {
  CCL_CHECK(check_settings());
  CCL_TRY(std::string address, setting_text("COMM_ID"));
  std::string variables = variable_of("COMM_ID");
  if (launch.ranks == 1) {  // it meets nobody; a value of NCCL's that is not used is no error
    if (!address.empty() && variables.starts_with("CCL_")) {
      const auto good = check_root_address(address);
      if (!good) return bad_address(variables, good.error());
    }
    return create_unique_id();
  }
  if (address.empty() && contains("MASTER_ADDR") && contains("MASTER_PORT")) {
    CCL_TRY(address, master_address());
    variables = "MASTER_ADDR and MASTER_PORT";
  }
  if (!address.empty()) {
    CCL_TRY(const auto secret, pmix_secret(launch));
    auto made = id_at(address, launch.job_key, secret);
    if (!made) return bad_address(variables, std::move(made).error());
    const UniqueId id = *made;
    if (launch.rank == 0) {
      if (auto root = start_root(id, 0); !root) {
        return bad_address(variables, std::move(root).error());
      }
    }
    log_info(LogPart::init, "rank {} of {} by {}; the root is at {}", launch.rank, launch.ranks,
             launch.launcher, address);
    return id;
  }
  std::string why = "PMIX_RANK is not set";
  if (contains("PMIX_RANK")) {
    const auto client = Pmix::instance();
    if (client) {
      std::string mine;
      if (launch.rank == 0) {
        CCL_TRY(const UniqueId id, create_unique_id());
        mine = id.to_string();
      }
      // Each id of a process has a new key, because PMIx caches values.
      static std::atomic<int> calls{0};
      const std::string key = fmt::format("ccl.id.{}", calls++);
      CCL_TRY(const std::string text, (*client)->from_first(key, mine));
      log_info(LogPart::init, "rank {} of {} by {}; the root came through PMIx", launch.rank,
               launch.ranks, launch.launcher);
      return UniqueId::from_string(text);
    }
    if (client.error().code == Errc::timed_out) return fail(client.error());
    why = client.error().what;
  }
  return fail(
      Errc::bad_setting,
      fmt::format("rank {} of {} by {} does not know the address of the root (CCL_COMM_ID is not "
                  "set, MASTER_ADDR and MASTER_PORT are not both set, and there is no PMIx: "
                  "{}); set CCL_COMM_ID=host:port to an address of rank 0's host",
                  launch.rank, launch.ranks, launch.launcher, why));
}

bool is_slurm(const LauncherVariables& d) {
  return std::string_view{d.launcher} == "Slurm";
}

/// The variable of the number of ranks: of the step, if Slurm has set it, before that of the job.
LauncherVariables with_size(LauncherVariables d) {
  if (!is_slurm(d)) return d;
  for (const char* const name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}) {
    if (!contains(name)) continue;
    d.ranks = name;
    break;
  }
  return d;
}

/// Warns if a program's own RANK and WORLD_SIZE are not those of the launcher that started it.
/// torchrun has ranks of its own in one rank of another launcher.
void compare_with_others(const LaunchEnvironment& chosen) {
  if (chosen.launcher != "torchrun" || contains("TORCHELASTIC_RUN_ID")) return;
  for (const LauncherVariables& any : dialects) {
    const LauncherVariables d = with_size(any);
    if (chosen.launcher == d.launcher || !contains(d.rank) || !contains(d.ranks)) continue;
    if (is_slurm(d) && outside_of_srun()) continue;
    const auto rank = number(d.rank), ranks = number(d.ranks);
    if (!rank || !ranks || (*rank == chosen.rank && *ranks == chosen.ranks)) continue;
    log_warn(LogPart::init,
             "RANK and WORLD_SIZE say that this is rank {} of {}, and {} and {} that it is rank {} "
             "of {}; the first count",
             chosen.rank, chosen.ranks, d.rank, d.ranks, *rank, *ranks);
  }
}

Result<LaunchEnvironment> launch_of_environment() {
  for (const LauncherVariables& any : dialects) {
    const LauncherVariables d = with_size(any);
    if (!contains(d.rank) && !contains(d.ranks)) continue;
    const bool batch = is_slurm(d) && outside_of_srun();
    if (!batch && (!contains(d.rank) || !contains(d.ranks))) {
      // Batch systems also set the job's size for programs that they did not start as ranks.
      if (!contains(d.rank) && is_slurm(d)) continue;
      return fail(
          Errc::bad_setting,
          fmt::format("{} is set and {} is not ({} sets both); set both, or unset it to run "
                      "alone",
                      contains(d.rank) ? d.rank : d.ranks, contains(d.rank) ? d.ranks : d.rank,
                      d.launcher));
    }
    if (batch) {
      if (contains(d.ranks) && env(d.ranks) != "1") {
        log_warn(LogPart::init,
                 "{} is {}, but this process is none of srun's ranks ({} is not set, as in a batch "
                 "script) and runs alone; start the ranks with srun",
                 d.ranks, env(d.ranks), d.step);
      }
      continue;
    }
    LaunchEnvironment launch;
    launch.launcher = d.launcher;
    CCL_TRY(launch.rank, number(d.rank));
    CCL_TRY(launch.ranks, number(d.ranks));
    if (contains(d.local_rank)) {
      CCL_TRY(launch.local_rank, number(d.local_rank));
    }
    launch.job_key = env(d.job) + (*d.step == 0 ? "" : "." + env(d.step));
    compare_with_others(launch);
    return checked(std::move(launch));
  }
  LaunchEnvironment launch;
  if (contains("PMIX_RANK")) {
    launch.launcher = "PMIx";
    launch.job_key = env("PMIX_NAMESPACE");
    const auto client = Pmix::instance();
    if (!client) {
      Error error = client.error();
      error.what = fmt::format(
          "PMIX_RANK is set and PMIx cannot be asked for the number of ranks ({}); set RANK and "
          "WORLD_SIZE",
          error.what);
      return fail(std::move(error));
    }
    launch.rank = (*client)->rank();
    CCL_TRY(launch.ranks, (*client)->ranks());
    return checked(std::move(launch));
  }
  launch.launcher = "alone";
  return launch;
}

}  // namespace

std::optional<UniqueId> known_id(const LaunchEnvironment& launch) noexcept {
  std::optional<UniqueId> found;
  if (launch.ranks < 2 || contains("PMIX_RANK")) return found;
  (void)completes([&] {
    auto address = setting_text("COMM_ID").value_or("");
    if (address.empty() && contains("MASTER_ADDR") && contains("MASTER_PORT")) {
      address = master_address().value_or("");
    }
    if (address.empty()) return;
    if (const auto id = id_with_secret(address, launch.job_key, {}, last_try_s)) found = *id;
  });
  return found;
}

}  // namespace ccl::detail

namespace ccl {

using namespace detail;

Result<LaunchEnvironment> detect_launch() {
  return without_exceptions(launch_of_environment);
}

Result<UniqueId> launch_id(const LaunchEnvironment& launch) {
  return without_exceptions([&]() -> Result<UniqueId> {
    auto id = rendezvous_id(launch);
    if (id) return id;
    return fail(detail::of_rank(launch.rank, std::move(id).error()));
  });
}

}  // namespace ccl
