#include <ccl/comm/launcher.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/bootstrap.hpp>
#include <ccl/detail/runtime/host_id.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "net/rendezvous.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/held_port.hpp"
#include "support/skip.hpp"
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

namespace {

constexpr const char* names[] = {"RANK",
                                 "WORLD_SIZE",
                                 "LOCAL_RANK",
                                 "MASTER_ADDR",
                                 "MASTER_PORT",
                                 "TORCHELASTIC_RUN_ID",
                                 "TORCHELASTIC_USE_AGENT_STORE",
                                 "OMPI_COMM_WORLD_RANK",
                                 "OMPI_COMM_WORLD_SIZE",
                                 "OMPI_COMM_WORLD_LOCAL_RANK",
                                 "PMIX_RANK",
                                 "PMIX_NAMESPACE",
                                 "PMI_RANK",
                                 "PMI_SIZE",
                                 "MPI_LOCALRANKID",
                                 "SLURM_PROCID",
                                 "SLURM_NTASKS",
                                 "SLURM_NPROCS",
                                 "SLURM_STEP_NUM_TASKS",
                                 "SLURM_LOCALID",
                                 "SLURM_JOB_ID",
                                 "SLURM_STEP_ID",
                                 "SLURM_STEPID",
                                 "CCL_COMM_ID",
                                 "CCL_INIT_TIMEOUT",
                                 "CCL_REQUIRE_SECRET",
                                 "CCL_SECRET",
                                 "CCL_SECRET_FILE",
                                 "NCCL_COMM_ID"};

// Environment of a launched process during the object's lifetime. The destructor restores the
// previous one.
class Launched {
 public:
  explicit Launched(const std::map<std::string, std::string>& vars) {
    for (const char* name : names) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      ::unsetenv(name);
    }
    for (const auto& [name, value] : vars) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Launched() {
    for (const char* name : names) ::unsetenv(name);
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::string> before_;
};

void mentions(const std::map<std::string, std::string>& vars, const char* launcher, int rank,
              int ranks, int local_rank) {
  const Launched env{vars};
  const auto launch = detect_launch();
  INFO(launcher);
  REQUIRE(launch);
  CHECK(launch->launcher == launcher);
  CHECK(launch->rank == rank);
  CHECK(launch->ranks == ranks);
  CHECK(launch->local_rank == local_rank);
}
Errc refused(const std::map<std::string, std::string>& vars) {
  const Launched env{vars};
  const auto launch = detect_launch();
  return launch ? Errc::ok : launch.error().code;
}

// Runs the steps of every rank of a launch. Returns 0 if all succeed.
int be_a_rank() {
  for (int round = 0; round < 2; ++round) {  // an id each time
    const auto launch = detect_launch();
    if (!launch) return 11;
    const auto id = launch_id(*launch);
    if (!id) {
      std::fprintf(stderr, "%s\n", id.error().message().c_str());
      return 12;
    }
    auto b = detail::Bootstrap::join({&*id, 1}, launch->rank, launch->ranks, {30, nullptr});
    if (!b) {
      std::fprintf(stderr, "%s\n", b.error().message().c_str());
      return 13;
    }
    std::vector<int> all(size_t(launch->ranks) + 0, 0);
    all[size_t(launch->rank)] = launch->rank + 1;
    if (!(*b)->all_gather(all.data(), sizeof(int)) || !(*b)->finalize()) return 14;
    for (int r = 0; r < launch->ranks; ++r) {
      if (all[size_t(r)] != r + 1) return 15;
    }
  }
  return 0;
}

int run_forked(int ranks, const std::map<std::string, std::string>& vars) {
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    auto mine = vars;
    mine["RANK"] = std::to_string(r);
    mine["WORLD_SIZE"] = std::to_string(ranks);
    const pid_t pid = ::fork();
    if (pid == 0) {
      const Launched env{mine};
      ::_exit(be_a_rank());
    }
    children.push_back(pid);
  }
  int worst = 0;
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 99);
  }
  return worst;
}

}  // namespace

TEST_CASE("each launcher's variables say who a process is") {
  mentions({}, "alone", 0, 1, 0);
  mentions({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}}, "torchrun", 3, 8, 1);
  mentions({{"OMPI_COMM_WORLD_RANK", "2"},
            {"OMPI_COMM_WORLD_SIZE", "4"},
            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
            {"PMIX_RANK", "2"}},
           "Open MPI", 2, 4, 2);
  mentions({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "PMI", 1, 2, 0);
  mentions({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "6"}, {"SLURM_LOCALID", "1"}}, "Slurm", 5, 6,
           1);
  mentions({{"SLURM_NTASKS", "6"}}, "alone", 0, 1, 0);
  // Rank 0 is a batch script or a shell, unless it has a step, as srun's ranks have.
  std::map<std::string, std::string> first{
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "6"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "7"}};
  mentions(first, "alone", 0, 1, 0);
  first["SLURM_STEP_ID"] = "0";
  mentions(first, "Slurm", 0, 6, 0);
  first["SLURM_STEP_NUM_TASKS"] = "2";  // the step's number counts before the job's
  mentions(first, "Slurm", 0, 2, 0);
  mentions({{"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "3"}, {"SLURM_NPROCS", "4"}}, "Slurm", 1, 4,
           0);
  // A batch script of a job that was asked for by tasks of each node has no number at all.
  mentions({{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "7"}}, "alone", 0, 1,
           0);
}

TEST_CASE("blanks around a number are nothing") {
  mentions({{"RANK", " 3"}, {"WORLD_SIZE", "8 "}}, "torchrun", 3, 8, 0);
  CHECK(refused({{"RANK", "1 2"}, {"WORLD_SIZE", "30"}}) == Errc::bad_setting);
  CHECK(refused({{"RANK", " "}, {"WORLD_SIZE", "3"}}) == Errc::bad_setting);
  const Launched env{{{"RANK", "1"},
                      {"WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", "23355 "}}};
  const auto id = launch_id(detect_launch().value());
  REQUIRE(id);
  CHECK(detail::net::Address{detail::net::unpack(*id)->root}.port() == 23355);
}

TEST_CASE("launchers that disagree are named") {
  const auto warned = [](const std::map<std::string, std::string>& vars) {
    const std::string path = "/tmp/ccl.launchers." + std::to_string(::getpid());
    ::setenv("CCL_DEBUG_FILE", path.c_str(), 1);
    log_reload();
    mentions(vars, "torchrun", 1, 4, 0);
    ::unsetenv("CCL_DEBUG_FILE");
    log_reload();
    std::ifstream file{path};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    ::unlink(path.c_str());
    return text;
  };
  std::map<std::string, std::string> both{{"RANK", "1"},
                                          {"WORLD_SIZE", "4"},
                                          {"OMPI_COMM_WORLD_RANK", "1"},
                                          {"OMPI_COMM_WORLD_SIZE", "4"}};
  CHECK(warned(both).empty());
  both["OMPI_COMM_WORLD_SIZE"] = "2";
  const std::string text = warned(both);
  CHECK(text.find("RANK and WORLD_SIZE say that this is rank 1 of 4, and OMPI_COMM_WORLD_RANK and "
                  "OMPI_COMM_WORLD_SIZE that it is rank 1 of 2") != text.npos);
  both["TORCHELASTIC_RUN_ID"] = "7";  // ranks of its own
  CHECK(warned(both).empty());
}

TEST_CASE("variables that make no sense are errors") {
  CHECK(refused({{"RANK", "3"}}) == Errc::bad_setting);
  CHECK(refused({{"RANK", "3"}, {"WORLD_SIZE", "3"}}) == Errc::bad_setting);
  CHECK(refused({{"RANK", "x"}, {"WORLD_SIZE", "3"}}) == Errc::bad_setting);
  CHECK(refused({{"PMI_RANK", "-1"}, {"PMI_SIZE", "3"}}) == Errc::bad_setting);
  CHECK(refused({{"PMIX_RANK", "0"}}) == Errc::not_supported);  // no server
}

TEST_CASE("without a place to meet the error lists what would give one") {
  const Launched env{{{"RANK", "0"}, {"WORLD_SIZE", "2"}}};
  const auto id = launch_id(detect_launch().value());
  REQUIRE_FALSE(id);
  CHECK(id.error().code == Errc::bad_setting);
  for (const char* way : {"CCL_COMM_ID", "MASTER_ADDR", "MASTER_PORT", "PMIx"}) {
    CHECK(id.error().what.find(way) != std::string::npos);
  }
}

TEST_CASE("a place to meet that is no address is an error that names its variables") {
  const auto refused_by = [](std::map<std::string, std::string> vars, const char* names,
                             const char* rank = "1") {
    vars.insert({{"RANK", rank}, {"WORLD_SIZE", "2"}});
    const Launched env{vars};
    const auto id = launch_id(detect_launch().value());
    REQUIRE_FALSE(id);
    if (*rank != '0') CHECK(id.error().code == Errc::bad_setting);
    CHECK(id.error().what.starts_with(names));
    CHECK(id.error().rank == *rank - '0');
    CHECK(id.error().host == detail::host_name());
  };
  refused_by({{"CCL_COMM_ID", "127.0.0.1"}}, "CCL_COMM_ID: ");
  refused_by({{"CCL_COMM_ID", "127.0.0.1:0"}}, "CCL_COMM_ID: ");
  refused_by({{"CCL_COMM_ID", "127.0.0.1:70000"}}, "CCL_COMM_ID: ");
  refused_by({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "70000"}},
             "MASTER_ADDR and MASTER_PORT: ");
  // An address of another host, at which rank 0 cannot listen.
  refused_by({{"MASTER_ADDR", "192.0.2.77"}, {"MASTER_PORT", "20000"}},
             "MASTER_ADDR and MASTER_PORT: cannot listen", "0");
}

TEST_CASE("a rank alone refuses CCL_COMM_ID that is no address, and looks no name up") {
  const auto id_alone = [](const char* variable, const char* value) {
    const Launched env{{{variable, value}}};
    return launch_id(detect_launch().value());
  };
  for (const char* value : {"foo", "127.0.0.1", ":4711", "node7:0", "node7:70000"}) {
    const auto id = id_alone("CCL_COMM_ID", value);
    REQUIRE_FALSE(id);
    CHECK(id.error().code == Errc::bad_setting);
    CHECK(id.error().what.starts_with(std::string{"CCL_COMM_ID: \""} + value + "\" "));
  }
  CHECK(id_alone("CCL_COMM_ID", "no-such-host.invalid:4711"));
  CHECK(id_alone("NCCL_COMM_ID", "foo"));  // which NCCL would not read here
}

// Name of a host that is longer than a server's name may be, so that no server is queried.
const std::string late_name(70, 'x');

TEST_CASE("a name that nobody knows is asked for until CCL_INIT_TIMEOUT") {
  const Launched env{{{"RANK", "1"},
                      {"WORLD_SIZE", "2"},
                      {"CCL_COMM_ID", late_name + ":4711"},
                      {"CCL_INIT_TIMEOUT", "0.3"}}};
  const auto id = launch_id(detect_launch().value());
  REQUIRE_FALSE(id);
  CHECK(id.error().code == Errc::bad_setting);
  for (const char* text :
       {"CCL_COMM_ID: this host knows no address of", "asked for 0.3 s: CCL_INIT_TIMEOUT"}) {
    CHECK(test::mentions(id.error().what, text));
  }
}

TEST_CASE("a name that becomes known later is waited for") {
  char file[] = "/tmp/ccl_hosts_XXXXXX";
  const int hosts = ::mkstemp(file);
  REQUIRE(hosts >= 0);
  int unknown[2];
  REQUIRE(::pipe(unknown) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(unknown[0]);
    if (::unshare(CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0) ::_exit(77);
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(77);
    if (::mount(file, "/etc/hosts", nullptr, MS_BIND, nullptr) != 0) ::_exit(77);
    const Launched env{{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"CCL_COMM_ID", late_name + ":4711"}}};
    const auto early = unique_id_at(late_name + ":4711", "");
    if (early || early.error().code != Errc::network) ::_exit(1);
    ::close(unknown[1]);
    const auto id = launch_id(detect_launch().value());
    ::_exit(id && *id == unique_id_at(late_name + ":4711", "").value() ? 0 : 2);
  }
  ::close(unknown[1]);
  char byte = 0;
  CHECK(::read(unknown[0], &byte, 1) == 0);  // the child has found the name unknown, or has ended
  ::close(unknown[0]);
  ::usleep(300'000);
  const std::string line = "127.0.0.1 " + late_name + "\n";
  CHECK(::write(hosts, line.data(), line.size()) == ssize_t(line.size()));
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(hosts);
  ::unlink(file);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) return test::skip("no mount namespaces here");
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE(
    "this host's own name stands for an address that others reach, whatever /etc/hosts says") {
  char file[] = "/tmp/ccl_hosts_XXXXXX";
  const int hosts = ::mkstemp(file);
  REQUIRE(hosts >= 0);
  const std::string name = detail::host_name();
  const std::string lines = "127.0.1.1 " + name + ".of.a.domain " + name + " " + late_name + "\n";
  REQUIRE(::write(hosts, lines.data(), lines.size()) == ssize_t(lines.size()));
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0) ::_exit(77);
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(77);
    if (::mount(file, "/etc/hosts", nullptr, MS_BIND, nullptr) != 0) ::_exit(77);
    const auto root_of = [](const std::string& host) {
      return detail::net::Address{
          detail::net::unpack(unique_id_at(host + ":4711", "").value()).value().root};
    };
    detail::net::Address mine = detail::net::local_address().value();
    mine.set_port(4711);
    if (!(root_of(name) == mine)) ::_exit(1);
    if (!(root_of(name + ".of.a.domain") == mine)) ::_exit(2);
    if (root_of(late_name).to_string() != "127.0.1.1:4711") ::_exit(3);  // another one's name
    ::_exit(root_of("127.0.0.1").to_string() == "127.0.0.1:4711" ? 0 : 4);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(hosts);
  ::unlink(file);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) return test::skip("no mount namespaces here");
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("ranks join at CCL_COMM_ID, at MASTER_ADDR, and beside torchrun's store") {
  const test::HeldPort port;
  CHECK(run_forked(3, {{"CCL_COMM_ID", "127.0.0.1:" + port.text()}}) == 0);
  CHECK(run_forked(2, {{"NCCL_COMM_ID", "[::1]:" + port.text()}}) == 0);
  CHECK(run_forked(3, {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port.text()}}) == 0);
  CHECK(run_forked(2, {{"MASTER_ADDR", "::1"},
                       {"MASTER_PORT", port.text()},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"}}) == 0);
}

TEST_CASE("ranks under mpirun meet through PMIx") {
  if (std::system("command -v mpirun > /dev/null 2>&1") != 0)
    return test::skip("there is no mpirun");
  const Launched env{{}};
  char self[4096] = {};
  REQUIRE(::readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  const auto run = [&](const std::string& variables) {
    const std::string command = "timeout 60 mpirun --allow-run-as-root --oversubscribe -n 3 " +
                                variables + " \"" + std::string{self} +
                                "\" --reporter compact '[.a rank under mpirun]'";
    return std::system(command.c_str());
  };
  CHECK(run("") == 0);
  // With an address, the secret still comes through PMIx.
  const test::HeldPort port;
  CHECK(run("-x CCL_REQUIRE_SECRET=1 -x CCL_COMM_ID=127.0.0.1:" + port.text()) == 0);
}

TEST_CASE("torchrun's ranks have no secret unless one is given") {
  const test::HeldPort port;
  const std::map<std::string, std::string> words{
      {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port.text()}, {"CCL_REQUIRE_SECRET", "1"}};
  CHECK(run_forked(2, words) == 12);  // `launch_id` fails
  auto given = words;
  given["CCL_SECRET"] = "a text of more than 16 bytes";
  CHECK(run_forked(2, given) == 0);
}

TEST_CASE("a rank under mpirun", "[.a rank under mpirun]") {
  CHECK(detect_launch().value().launcher == "Open MPI");
  CHECK(detect_launch().value().ranks == 3);
  CHECK(be_a_rank() == 0);
}

TEST_CASE("PMIx alone tells rank and size", "[.a rank under mpirun]") {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}) ::unsetenv(name);
  CHECK(detect_launch().value().launcher == "PMIx");
  CHECK(detect_launch().value().ranks == 3);
  CHECK(be_a_rank() == 0);
}
