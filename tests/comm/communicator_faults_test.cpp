// Communicators of two ranks in one process in which one allocation, all further allocations, or
// one system call fails: each ends in success or an error on every rank, whichever it is.
//
// Each run is a process of its own. The default run tries a part of all places, CCL_TEST_LONG all:
//
//   FAULT_RUNS=100 ccl.test.comm.communicator_faults "an allocation fails: splits and shrinks end"
//   FAULT_PLACE=7 prints what the ranks of one place end with
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/group.hpp>
#include <ccl/proto/simple.hpp>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/chosen_transport.hpp"
#include "support/processes.hpp"
#include "support/replaced_new.hpp"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::test;

namespace {

/// What fails in a process.
enum class Fault : int { allocation, all_allocations, system_call };

/// Steps of a job, by which the places are counted.
enum Step { creation, call, end, steps };

struct Outcome {
  int code = -1;  // of each rank's error; 0: none
  int peer = -1;
  double ended_s = 0;
  char what[400] = {};
};

/// State that a process shares with the one that has started it.
struct Report {
  std::atomic<long> places{0};  // of the fault's kind, so far
  long until[steps] = {};       // places at the end of each step, if all went well
  Outcome rank[2];
  bool escaped = false;  // an exception has left a function that returns an error
  bool ended = false;
  Holdings before{}, allowed{}, after{};
};

// Of this process; the threads of the job read them.
std::atomic<bool> armed{false};
Report* report = nullptr;
Fault fault = Fault::allocation;
long place = 0;  // that fails, counted from 1

/// True if the operation must fail.
bool fails(bool allocates) {
  if (!armed.load(std::memory_order_relaxed) || allocates == (fault == Fault::system_call)) {
    return false;
  }
  const long now = report->places.fetch_add(1, std::memory_order_relaxed) + 1;
  return now == place || (fault == Fault::all_allocations && place > 0 && now > place);
}

}  // namespace

// System calls that take memory, a descriptor or a thread. The program's own functions precede
// those of the C library, also for the C++ library.
namespace {
template <class Call>
Call next_of(const char* name) {
  return reinterpret_cast<Call>(::dlsym(RTLD_NEXT, name));
}
/// Calls the C library's function, or fails with `code`.
template <class Returned, class... Args>
Returned call_or_fail(const char* name, int code, Args... args) {
  if (fails(false)) {
    errno = code;
    return Returned(-1);
  }
  return next_of<Returned (*)(Args...)>(name)(args...);
}
}  // namespace

extern "C" {
int socket(int domain, int type, int protocol) noexcept {
  return call_or_fail<int>("socket", EMFILE, domain, type, protocol);
}
int accept4(int fd, sockaddr* address, socklen_t* bytes, int flags) {
  return call_or_fail<int>("accept4", EMFILE, fd, address, bytes, flags);
}
int eventfd(unsigned count, int flags) noexcept {
  return call_or_fail<int>("eventfd", EMFILE, count, flags);
}
int epoll_create1(int flags) noexcept {
  return call_or_fail<int>("epoll_create1", EMFILE, flags);
}
int epoll_ctl(int set, int what, int fd, epoll_event* event) noexcept {
  if (what != EPOLL_CTL_ADD)
    return next_of<decltype(&epoll_ctl)>("epoll_ctl")(set, what, fd, event);
  return call_or_fail<int>("epoll_ctl", ENOSPC, set, what, fd, event);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return call_or_fail<int>("memfd_create", EMFILE, name, flags);
}
int ftruncate(int fd, off_t bytes) noexcept {
  return call_or_fail<int>("ftruncate", ENOMEM, fd, bytes);
}
void* mmap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if (fails(false)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return next_of<decltype(&mmap)>("mmap")(at, bytes, protection, flags, fd, offset);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  if (fails(false)) return EAGAIN;
  return next_of<decltype(&pthread_create)>("pthread_create")(thread, attributes, body, argument);
}
}

namespace {

/// Thread that exists before the fault is armed, and runs one rank's part of the job.
class Second {
 public:
  Second() : thread_{[this] { run(); }} {}
  ~Second() { thread_.join(); }
  template <class Body>
  void start(Body& body) {
    body_ = [](void* context) { (*static_cast<Body*>(context))(); };
    context_ = &body;
    go();
  }
  void skip() { go(); }
  void wait() { done_.wait(false); }

 private:
  void go() {
    begins_ = true;
    begins_.notify_one();
  }
  void run() {
    begins_.wait(false);
    if (body_ != nullptr) body_(context_);
    done_ = true;
    done_.notify_one();
  }
  void (*body_)(void*) = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> begins_{false}, done_{false};
  std::thread thread_;
};

using Sums = Collective<AllReduce, Tree, Simple, ChosenTransport>;
using Messages = Collective<SendRecv, Pairwise, Simple, ChosenTransport>;
constexpr Index count = 3000;
constexpr double late_s = 2;  // for a rank whose error does not reach the other

void reached(const Communicator& comm, Step step) {
  if (comm.rank() == 0) report->until[step] = report->places;
}

/// Sums of all ranks, and a message to the other rank and back.
Result<void> calls(const Communicator& comm, int (&data)[2][count]) {
  CCL_TRY(const auto sums, Sums::create(comm));
  CCL_TRY(const auto messages, Messages::create(comm));
  reached(comm, creation);
  for (int& value : data[0]) value = comm.rank() + 1;
  CCL_CHECK(sums(data[0], data[1], count));
  CCL_CHECK(messages(data[1], count, 1 - comm.rank(), data[0], count, 1 - comm.rank()));
  for (const int value : data[0]) {
    if (value != 3) return fail(Errc::internal, "wrong data");
  }
  reached(comm, call);
  return {};
}

/// Calls on a stream, and a group.
Result<void> queued_calls(const Communicator& comm, int (&data)[2][count]) {
  CCL_TRY(const auto sums, Sums::create(comm));
  CCL_TRY(const auto more, Sums::create(comm));
  reached(comm, creation);
  for (int& value : data[0]) value = comm.rank() + 1;
  HostStream stream;
  const auto all = [&]() -> Result<void> {
    CCL_CHECK(sums(data[0], data[1], count / 2, Sum{}, stream));
    return group(stream, sums.bind(data[0], data[1], count / 2, Sum{}),
                 more.bind(data[0] + count / 2, data[1] + count / 2, count / 2, Sum{}));
  };
  const Result<void> queued = all(), ran = stream.synchronize();
  CCL_CHECK(queued);
  CCL_CHECK(ran);
  for (const int value : data[1]) {
    if (value != 3) return fail(Errc::internal, "wrong data");
  }
  reached(comm, call);
  return {};
}

/// A communicator of all ranks of another one, and one without blocking.
Result<void> further_communicators(const Communicator& comm, int (&)[2][count]) {
  CCL_CHECK(comm.barrier());
  Config config;
  config.init_timeout_s = config.timeout_s = late_s;
  CCL_TRY(const auto child, comm.split(0, comm.rank(), config));
  CCL_TRY(const auto rest, comm.shrink({}, Shrink::keep_parent, config));
  reached(comm, creation);
  CCL_CHECK(child->barrier());
  CCL_CHECK(rest.barrier());
  reached(comm, call);
  CCL_CHECK(child->finalize());
  return rest.finalize();
}

using Body = Result<void> (*)(const Communicator&, int (&)[2][count]);

void judge(Outcome& outcome, const Result<void>& result) {
  outcome.code = result ? 0 : int(result.error().code);
  outcome.ended_s = seconds(Clock::now().time_since_epoch());
  if (!result) outcome.peer = result.error().peer;
  if (!result) std::strncpy(outcome.what, result.error().what.c_str(), sizeof outcome.what - 1);
}

/// Runs one rank. No exception may leave it, except those of a stream, which throws by its
/// contract.
void run_rank(const Communicator& comm, Body body) {
  static int data[2][2][count];
  Outcome& outcome = report->rank[comm.rank()];
  try {
    auto result = body(comm, data[comm.rank()]);
    if (result) result = comm.finalize();
    if (result) reached(comm, end);
    judge(outcome, result);
  } catch (const cuda::std::bad_expected_access<Error>&) {  // HostStream found no thread
    outcome.code = int(Errc::system);
    comm.abort("no stream");
  } catch (const std::bad_alloc&) {
    outcome.code = int(Errc::out_of_memory);
    report->escaped = body != queued_calls;  // HostStream found no memory
    comm.abort("no memory");
  }
}

struct Job {
  Body body;
  bool in_background = false;  // its ranks are created so, each by itself
  double limit_s = 5;          // of each wait, for a rank that cannot say why it ended
  bool names = false;          // a rank that ends because of the other one must name it, in time
};

Config config_of(const Job& job) {
  Config config;
  config.device = Config::cpu;
  config.init_timeout_s = config.timeout_s = job.limit_s;
  config.blocking = !job.in_background;
  return config;
}

/// Runs `rank(0)` on this thread and `rank(1)` on the other one.
template <class Rank>
void on_both(Second& second, Rank rank) {
  auto other = [&] { rank(1); };
  second.start(other);
  rank(0);
  second.wait();
}

void run_together(const Job& job, Second& second) {
  auto comms = Communicator::create_all(2, config_of(job));
  if (!comms) {
    for (Outcome& outcome : report->rank) judge(outcome, fail(comms.error()));
    return second.skip();
  }
  // As in a process of its own, a rank that fails drops its communicator.
  on_both(second, [&](int rank) {
    const Communicator mine = std::move((*comms)[std::size_t(rank)]);
    run_rank(mine, job.body);
  });
}

/// As ranks of two processes would, by a unique id.
void run_by_id(const Job& job, Second& second) {
  const auto id = create_unique_id();
  if (!id) {
    for (Outcome& outcome : report->rank) judge(outcome, fail(id.error()));
    return second.skip();
  }
  on_both(second, [&](int rank) {
    const auto comm = Communicator::create(*id, rank, 2, config_of(job));
    const Result<void> made = comm ? comm->wait() : fail(comm.error());
    if (!made) return judge(report->rank[rank], made);
    run_rank(*comm, job.body);
  });
}

void run_job(const Job& job, Second& second) {
  job.in_background ? run_by_id(job, second) : run_together(job, second);
}

/// Process that runs the job with a fault. Its status is 0 if it has ended by itself.
pid_t start_run(const Job& job, Fault kind, long at, Report& shared) {
  return start_process([&] {
    report = &shared;
    fault = kind;
    place = at;
    shared.before = Holdings::of_this_process();
    allocation_hook = [] { return !fails(true); };
    {
      Second second;
      armed = true;
      try {
        run_job(job, second);
      } catch (...) {
        shared.escaped = true;
        second.skip();
      }
      armed = false;
    }
    // The root of an id waits a minute for ranks that come late: its thread, its listener and the
    // engine's two descriptors, and one descriptor in reserve.
    const bool root = job.in_background && (shared.rank[0].code != 0 || shared.rank[1].code != 0);
    shared.allowed = {shared.before.files + (root ? 4u : 0u),
                      shared.before.threads + (root ? 1u : 0u)};
    (void)wait_until([&] { return Holdings::of_this_process().within(shared.allowed); }, 30);
    shared.after = Holdings::of_this_process();
    shared.ended = true;
    return 0;
  });
}

/// Waits for the process while its job moves. Returns its status, or nothing after it was killed:
/// a job that makes no allocation or call for a minute hangs.
std::optional<int> await(pid_t pid, const Report& of) {
  int status = 0;
  long seen = -1;
  auto moved = Clock::now();
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (const long now = of.places; now != seen) {
      seen = now;
      moved = Clock::now();
    }
    if (seconds(Clock::now() - moved) > 60) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      return {};
    }
    sleep_s(0.001);
  }
  return status;
}

/// Returns what is wrong with the end of a rank whose other rank has failed, or an empty text.
std::string wrong_name(const Report& of, int rank) {
  const Outcome &mine = of.rank[rank], &other = of.rank[1 - rank];
  if (mine.code == int(Errc::timed_out)) return std::string{"waits to the limit: "} + mine.what;
  const bool failed_first = mine.code == 0 || mine.code == int(Errc::out_of_memory);
  if (failed_first || other.code != int(Errc::out_of_memory)) return {};
  if (mine.peer == 1 - rank) return {};
  return "names rank " + std::to_string(mine.peer) + ": " + mine.what;
}

/// Returns what is wrong with a run, or an empty text.
std::string fault_of(const Job& job, const std::optional<int>& status, const Report& of) {
  if (!status) return "hangs";
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0 || !of.ended) {
    return WIFSIGNALED(*status) ? "crashes by signal " + std::to_string(WTERMSIG(*status))
                                : "ends early";
  }
  if (of.escaped) return "throws";
  for (const Outcome& rank : of.rank) {
    if (rank.code < 0 || rank.code == int(Errc::internal)) {
      return std::string{"has no error: "} + rank.what;
    }
  }
  for (int rank = 0; rank < 2 && job.names; ++rank) {
    if (auto why = wrong_name(of, rank); !why.empty()) return why;
  }
  if (!of.after.within(of.allowed)) {
    return "leaks: " + std::to_string(of.after.files) + " descriptors and " +
           std::to_string(of.after.threads) + " threads after " + std::to_string(of.before.files) +
           " and " + std::to_string(of.before.threads);
  }
  return {};
}

#if defined(CCL_TEST_LONG)
constexpr long usual_runs = 1'000'000;
#else
constexpr long usual_runs = 50;  // of one job
#endif
long number_of(const char* variable, long usual) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? usual : std::atol(text);
}
constexpr int at_once = 8;  // runs wait for each other's ends more than for a core

/// Prints how the ranks of one run end.
void show(const char* name, const Job& job, Fault kind, long at) {
  Shared<Report> run;
  const auto status = await(start_run(job, kind, at, *run), *run);
  std::printf("%s, place %ld: %s\n", name, at, fault_of(job, status, *run).c_str());
  for (const Outcome& rank : run->rank) {
    const auto code = std::string{rank.code > 0 ? ccl::name(Errc(rank.code)) : "success"};
    std::printf("  %s, peer %d, %.3f s: %s\n", code.c_str(), rank.peer,
                rank.ended_s - run->rank[0].ended_s, rank.what);
  }
}

/// Runs the job with each fault, or with some of them.
void try_all(const char* name, const Job& job, Fault kind) {
  if (const long at = number_of("FAULT_PLACE", 0); at > 0) return show(name, job, kind, at);
  Shared<Report> plain;
  const auto status = await(start_run(job, kind, 0, *plain), *plain);
  INFO(name << " without a fault: " << plain->rank[0].what << ", " << plain->rank[1].what);
  REQUIRE(fault_of(job, status, *plain) == "");
  REQUIRE((plain->rank[0].code == 0 && plain->rank[1].code == 0));
  const long places = plain->places, runs = std::min(places, number_of("FAULT_RUNS", usual_runs));
  struct Run {
    long at;
    Shared<Report> report{};
    pid_t pid = 0;
  };
  std::map<std::string, std::vector<long>> wrong;
  std::vector<std::unique_ptr<Run>> running;
  long failed = 0, late = 0;
  const auto end_first = [&] {
    const auto first = std::move(running.front());
    running.erase(running.begin());
    const auto ended = await(first->pid, *first->report);
    for (const Outcome& rank : first->report->rank) late += rank.code == int(Errc::timed_out);
    failed += long(first->report->rank[0].code != 0 || first->report->rank[1].code != 0);
    if (const auto why = fault_of(job, ended, *first->report); !why.empty()) {
      wrong[why].push_back(first->at);
    }
  };
  for (long n = 0; n < runs; ++n) {
    running.emplace_back(new Run{1 + n * places / runs});
    Run& run = *running.back();
    run.pid = start_run(job, kind, run.at, *run.report);
    if (running.size() == at_once) end_first();
  }
  while (!running.empty()) end_first();
  std::printf(
      "%s: %ld of %ld places (creation %ld, calls %ld, end %ld): %ld runs fail, %ld ranks wait to "
      "the limit\n",
      name, runs, places, plain->until[creation], plain->until[call] - plain->until[creation],
      places - plain->until[call], failed, late);
  for (const auto& [why, at] : wrong) {
    std::string list;
    for (const long one : at) list += " " + std::to_string(one);
    UNSCOPED_INFO(name << " " << why << " if this place fails:" << list);
  }
  CHECK(wrong.empty());
}

void try_transports(const char* name, const Job& job, Fault kind) {
  const std::pair<const char*, detail::TransportTable> all[] = {
      {"shm", detail::transport_table<ShmTransport>()},
      {"socket", detail::transport_table<SocketTransport>()}};
  for (const auto& [transport, table] : all) {
    chosen = table;
    try_all((std::string{name} + " over " + transport).c_str(), job, kind);
  }
}

}  // namespace

TEST_CASE("an allocation fails: every rank of a job ends by an error, or succeeds") {
  try_transports("calls", {.body = calls}, Fault::allocation);
}

TEST_CASE("an allocation fails: queued calls and groups end") {
  try_transports("queued calls", {.body = queued_calls}, Fault::allocation);
}

TEST_CASE("an allocation fails: splits and shrinks end") {
  chosen = detail::transport_table<ShmTransport>();
  const Job job{.body = further_communicators, .limit_s = late_s, .names = true};
  try_all("further communicators", job, Fault::allocation);
}

TEST_CASE("an allocation fails: creation in the background ends") {
  chosen = detail::transport_table<ShmTransport>();
  try_all("creation in the background", {.body = calls, .in_background = true}, Fault::allocation);
}

TEST_CASE("no memory is left: every rank of a job ends by an error") {
  try_transports("calls without further memory", {.body = calls}, Fault::all_allocations);
}

TEST_CASE("a system call fails: every rank of a job ends by an error, or succeeds") {
  try_transports("system calls", {.body = calls}, Fault::system_call);
}
