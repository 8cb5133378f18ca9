#include <ccl/comm/launcher.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

namespace {

constexpr int not_opened = 3;

// A rank of a job of PMIx whose forked child ends first.
[[noreturn]] void rank_with_child(int ends) {
  ::alarm(60);
  for (const char* name : {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                           "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS"}) {
    ::unsetenv(name);
  }
  ::setenv("PMIX_RANK", "0", 1);
  ::setenv("FAKE_PMIX_ENDS", std::to_string(ends).c_str(), 1);
  // The launcher opens it by its name, which is in use then.
  if (::dlopen(CCL_FAKE_PMIX, RTLD_NOW | RTLD_GLOBAL) == nullptr) std::_Exit(not_opened);
  const auto launch = detect_launch();
  if (!launch || launch->launcher != "PMIx" || launch->ranks != 2) std::_Exit(1);
  const pid_t child = ::fork();
  if (child == 0) std::exit(0);
  int status = -1;
  ::waitpid(child, &status, 0);
  std::exit(status == 0 ? 0 : 2);
}

}  // namespace

TEST_CASE("a forked child does not end the PMIx session of its parent") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t rank = ::fork();
  if (rank == 0) rank_with_child(ends[1]);
  ::close(ends[1]);
  std::vector<pid_t> ended;
  for (pid_t process = 0; ::read(ends[0], &process, sizeof process) == sizeof process;) {
    ended.push_back(process);
  }
  ::close(ends[0]);
  int status = -1;
  ::waitpid(rank, &status, 0);
  CHECK(status == 0);
  CHECK(ended == std::vector{rank});
}
