// Faults of jobs that the watchdog must explain by itself: the rank at fault, and the cause. Each
// rank is a process, and the log is what a user sees.
//
//   ccl.test.comm.watchdog "faults of*"    prints the table of docs/validation/diagnosis.md
#include <algorithm>

#include "support/call_faults.hpp"
#include "support/network_faults.hpp"
#include "support/rank_faults.hpp"
#include "support/skip.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::faults;

TEST_CASE("faults of calls: a rank does not call, or calls something else") {
  faults_of_calls<Shm>();
}

TEST_CASE("faults of ranks: finalize, another communicator, a stream with other work") {
  faults_of_steps<Shm>();
  faults_of_streams<Shm>();
}

TEST_CASE("faults of processes: stopped, killed") {
  faults_of_processes<Shm, Tcp>();
}

TEST_CASE("faults of networks: a silent link, a proxy that does not run") {
  faults_of_networks<Tcp>();
}

TEST_CASE("faults of programs: a functor that hangs, an abort, a missing call of all ranks") {
  faults_of_programs<Shm>();
#if defined(CCL_TEST_LONG)
  faults_over_tcp<Tcp>();
#endif
}

#if defined(CCL_TEST_LONG)
// The last case of the file: what the ones before have played.
TEST_CASE("faults in all: of at least 30, all but one are named rightly within 10 s") {
  if (table().empty()) return skip("the cases before have played no fault");
  const auto in_time =
      std::ranges::count_if(table(), [](const Named& of) { return of.right && of.took_s < 10; });
  std::printf("%td of %zu faults are named within 10 s\n", in_time, table().size());
  CHECK(table().size() >= 30);
  CHECK(std::size_t(in_time) + 1 >= table().size());
}
#endif
