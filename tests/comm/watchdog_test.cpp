// Faults of jobs that the watchdog must explain by itself: the rank at fault, and the cause. Each
// rank is a process, and the log is what a user sees.
//
//   ccl.test.comm.watchdog "faults of*"    prints the table of docs/validation/diagnosis.md
#include <ccl/checked.hpp>

#include <algorithm>
#include <limits>
#include <map>

#include "comm/state.hpp"
#include "support/fault_job.hpp"
#include <linux/filter.h>
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::faults;

TEST_CASE("faults of calls: a rank does not call, or calls something else") {
  play<Shm>("does not call", {Cause::not_called, victim, "has not called operation 4", 4},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  play<Shm>("another count", {Cause::other_count}, [](Shm& calls) -> Result<void> {
    if (calls.is_victim()) fires(calls.board);
    return calls.sum(calls.is_victim() ? 1000 : 400'000);
  });
#if defined(CCL_TEST_LONG)  // the short test of diagnose() has these
  play<Shm>("another type", {Cause::other_type}, [](Shm& calls) -> Result<void> {
    if (!calls.is_victim()) return calls.sum(400'000);
    fires(calls.board);
    return calls.sums(calls.dx.data(), calls.dy.data(), 400'000);
  });
  // The operation itself completes, with a wrong result.
  play<Shm>("another reduction", {Cause::other_reduction, victim, "float, max"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) {
                CCL_CHECK(calls.sum());
                return calls.sum();
              }
              CCL_CHECK(calls.sums(calls.x.data(), calls.y.data(), count, Max{}));
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  play<Shm>("another root", {Cause::other_root, 0, "root 2"}, [](Shm& calls) -> Result<void> {
    if (calls.comm.rank() == 0) fires(calls.board);
    return calls.copies(calls.x.data(), calls.y.data(), 400'000, calls.comm.rank() == 0 ? 2 : 0);
  });
  play<Shm>(
      "two operations in another order", {Cause::other_operation}, [](Shm& calls) -> Result<void> {
        const auto other = [&] { return calls.ll_sums(calls.x.data(), calls.y.data(), count); };
        if (!calls.is_victim()) {
          CCL_CHECK(calls.sum());
          return other();
        }
        fires(calls.board);
        CCL_CHECK(other());
        return calls.sum();
      });
  play<Shm>("another operation", {Cause::other_operation, victim, "called broadcast"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              return calls.copies(calls.x.data(), calls.y.data(), count, 0);
            });
  play<Shm>("leaves out an operation", {Cause::other_operation, victim, "as operation 4"},
            [](Shm& calls) -> Result<void> {
              if (calls.is_victim()) fires(calls.board);
              if (!calls.is_victim()) CCL_CHECK(calls.sum());
              return calls.ll_sums(calls.x.data(), calls.y.data(), count);
            });
  play<Shm>("a barrier in place of an operation",
            {Cause::other_operation, victim, "called barrier"}, [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              return calls.comm.barrier();
            });
  play<Shm>("does not call a barrier",
            {Cause::not_called, victim, "has not called operation 4 (barrier)", 4},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.comm.barrier();
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  play<Shm>("sends no message", {Cause::not_called, victim, "rank 0 waits for it at step 0", 4},
            [](Shm& calls) -> Result<void> {
              if (calls.is_victim()) fires(calls.board);
              if (calls.comm.rank() == 0) return calls.messages.recv(calls.y.data(), count, victim);
              return {};
            });
  play<Shm>("a circle of receives", {Cause::circle, -1, "wait for each other in a circle", 4},
            [](Shm& calls) -> Result<void> {
              if (calls.is_victim()) fires(calls.board);
              const int next = (calls.comm.rank() + 1) % ranks;
              CCL_CHECK(calls.messages.recv(calls.y.data(), count, next));
              return calls.messages.send(calls.x.data(), count, (next + 2) % ranks);
            });
#endif
}

TEST_CASE("faults of ranks: finalize, another communicator, a stream with other work") {
  play<Shm>("is in finalize", {Cause::other_step, victim, "it is in finalize"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              return calls.comm.finalize();
            });
  play<Shm>("does not call finalize",
            {Cause::not_called, victim, "has not called finalize (its last is operation 3", 4},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.comm.finalize();
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  // Rank 0 has asked for a message before, which rank 1 sends at the end.
  play<Shm>("does not call, where a receive waits on purpose",
            {Cause::not_called, victim, "has not called operation 4", 4},
            [](Shm& calls) -> Result<void> {
              HostStream stream;
              float word = 0;
              if (calls.comm.rank() == 0) {
                CCL_CHECK(calls.messages.recv(&word, 1, 1, stream));
                sleep_s(0.5);
              }
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
#if defined(CCL_TEST_LONG)
  play<Shm>("is in split", {Cause::other_step, victim, "it is in split"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              CCL_TRY(const auto part, calls.comm.split(0, 0));
              return {};
            });
  play<Shm>("creates a composition", {Cause::other_step, victim, "it is in"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              CCL_TRY(const auto sums, Shm::Sums::create(calls.comm));
              return {};
            });
#endif
  // Of all ranks, and of ranks 0 and 2. In the pair, rank 0 is late as in a usual pause.
  play<Shm>(
      "a circle of two communicators",
      {Cause::communicators, victim, "of communicator pair of 2 ranks, where it waits for rank 0"},
      [](Shm& calls) -> Result<void> {
        const bool in_pair = calls.comm.rank() % 2 == 0;
        Config config;
        config.device = Config::cpu;
        config.name = "pair";
        CCL_TRY(const auto pair, calls.comm.split(in_pair ? 0 : -1, 0, config));
        if (!in_pair) return calls.sum();
        CCL_TRY(const auto sums, Shm::Sums::create(*pair));
        if (!calls.is_victim()) return calls.sum();
        fires(calls.board);
        return sums(calls.x.data(), calls.y.data(), count);
      });
  play<Shm>("is queued behind other work of its stream",
            {Cause::queued, victim, "has not begun operation 4", 4},
            [](Shm& calls) -> Result<void> {
              HostStream stream;
              if (calls.is_victim()) {
                stream.enqueue([&board = calls.board]() -> Result<void> {
                  fires(board);
                  wait_for_the_end(board);
                  return {};
                });
              }
              CCL_CHECK(calls.sums(calls.x.data(), calls.y.data(), count, Sum{}, stream));
              return stream.synchronize();
            });
}

TEST_CASE("faults of processes: stopped, killed") {
  play<Shm>("is stopped", {Cause::no_answer, victim, "does not answer"},
            [](Shm& calls) -> Result<void> {
              if (calls.is_victim()) {
                fires(calls.board);
                raise(SIGSTOP);
              }
              return calls.sum();
            });
#if defined(CCL_TEST_LONG)
  play<Tcp>("is stopped, over TCP", {Cause::no_answer, victim, "does not answer"},
            [](Tcp& calls) -> Result<void> {
              if (calls.is_victim()) {
                fires(calls.board);
                raise(SIGSTOP);
              }
              return calls.sum();
            });
#endif
  fails<Shm>("is killed", Errc::peer_lost, [](Shm& calls) -> Result<void> {
    if (calls.is_victim()) {
      fires(calls.board);
      raise(SIGKILL);
    }
    return calls.sum();
  });
#if defined(CCL_TEST_LONG)
  fails<Tcp>("is killed, over TCP", Errc::peer_lost, [](Tcp& calls) -> Result<void> {
    if (calls.is_victim()) {
      fires(calls.board);
      raise(SIGKILL);
    }
    return calls.sum();
  });
  fails<Shm>("ends without finalize", Errc::peer_lost, [](Shm& calls) -> Result<void> {
    if (calls.is_victim()) {
      fires(calls.board);
      std::_Exit(0);
    }
    return calls.sum();
  });
  play<Shm>("is stopped, the others are in a barrier",
            {Cause::no_answer, victim, "does not answer"}, [](Shm& calls) -> Result<void> {
              if (calls.is_victim()) {
                fires(calls.board);
                raise(SIGSTOP);
              }
              return calls.comm.barrier();
            });
  play<Shm>("is stopped, the others are in split", {Cause::no_answer, victim, "does not answer"},
            [](Shm& calls) -> Result<void> {
              if (calls.is_victim()) {
                fires(calls.board);
                raise(SIGSTOP);
              }
              CCL_TRY(const auto part, calls.comm.split(0, 0));
              return {};
            });
#endif
}

namespace {

std::map<int, std::string> tcp_sockets() {
  std::map<int, std::string> found;
  for (const std::string& text : list_dir("/proc/self/fd")) {
    const int fd = std::atoi(text.c_str());
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        (peer.ss_family == AF_INET || peer.ss_family == AF_INET6)) {
      char path[128] = {};
      (void)!::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path, sizeof path - 1);
      found[fd] = path;
    }
  }
  return found;
}

/// Lets the network stack drop all that arrives at a socket. The other end gets no answer.
bool silence(int fd) {
  sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &drop};
  return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

/// Task of a proxy that never returns, as if its thread had no CPU.
struct Holds final : ProxyTask {
  explicit Holds(Board& of) : board{of} {}
  Progress progress(ProxyCounters&) override {
    if (!begun) fires(board);
    begun = true;
    wait_for_the_end(board);
    return Progress::none;
  }
  ProxyInterest interest() const override { return {.pending = true}; }
  bool ending() const override { return false; }
  Board& board;
  bool begun = false;
};

}  // namespace

TEST_CASE("faults of networks: a silent link, a proxy that does not run") {
  play<Tcp>("a link delivers nothing", {Cause::silent_link, 1, "does not deliver"},
            [](Tcp& calls) -> Result<void> {
              CCL_CHECK(calls.comm.barrier());
              if (calls.is_victim()) {
                // The ring's data sockets come from rank 1 and go to rank 3.
                const auto before = tcp_sockets();
                CCL_TRY(const auto late, Tcp::Sums::create(calls.comm));
                int silenced = 0;
                for (const auto& [fd, text] : tcp_sockets()) {
                  const auto old = before.find(fd);
                  if (old != before.end() && old->second == text) continue;
                  silenced += silence(fd);
                }
                if (silenced > 0) fires(calls.board);
                return late(calls.x.data(), calls.y.data(), count);
              }
              CCL_TRY(const auto late, Tcp::Sums::create(calls.comm));
              return late(calls.x.data(), calls.y.data(), count);
            });
  play<Tcp>("a proxy does not run", {Cause::stuck_proxy, victim, "has not run for"},
            [](Tcp& calls) -> Result<void> {
              if (calls.is_victim()) {
                auto& proxy = detail::Access::state(calls.comm)->proxy;
                CCL_CHECK(proxy.add(std::make_shared<Holds>(calls.board)));
                (void)wait_until([&] { return calls.board.fired > 0; }, give_up_s);
              }
              return calls.sum();
            });
}

namespace {
/// Sum whose functor does not return on the rank at fault.
struct Hangs {
  Board* board;
  bool here;
  float operator()(float a, float b) const {
    if (here && board->fired == 0) {
      fires(*board);
      wait_for_the_end(*board);
    }
    return a + b;
  }
};
}  // namespace

TEST_CASE("faults of programs: a functor that hangs, an abort, a missing call of all ranks") {
  play<Shm>("its functor does not return", {Cause::working, victim, "waits for nobody", 4},
            [](Shm& calls) -> Result<void> {
              return calls.sums(calls.x.data(), calls.y.data(), count,
                                Hangs{&calls.board, calls.is_victim()});
            });
#if defined(CCL_TEST_LONG)
  play<Shm>("does not call split", {Cause::not_called, victim, "has not called split", 4},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) {
                CCL_TRY(const auto part, calls.comm.split(0, 0));
                return {};
              }
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  play<Shm>("does not create a composition", {Cause::not_called, victim, "has not called", 4},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) {
                CCL_TRY(const auto sums, Shm::Sums::create(calls.comm));
                return {};
              }
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  play<Tcp>("does not call, over TCP", {Cause::not_called, victim, "has not called operation 4", 4},
            [](Tcp& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  play<Tcp>("another count, over TCP", {Cause::other_count}, [](Tcp& calls) -> Result<void> {
    if (calls.is_victim()) fires(calls.board);
    return calls.sum(calls.is_victim() ? 1000 : 400'000);
  });
  fails<Shm>("calls abort", Errc::aborted, [](Shm& calls) -> Result<void> {
    if (calls.is_victim()) {
      fires(calls.board);
      calls.comm.abort("the fault");
    }
    return calls.sum();
  });
  fails<Shm>("has a NaN, with Checked", Errc::not_a_number, [](Shm& calls) -> Result<void> {
    CCL_TRY(const auto sums, (Collective<AllReduce, Checked<Ring>, Simple>::create(calls.comm)));
    if (calls.is_victim()) {
      calls.x[77] = std::numeric_limits<float>::quiet_NaN();
      fires(calls.board);
    }
    return sums(calls.x.data(), calls.y.data(), count);
  });
#endif
}

#if defined(CCL_TEST_LONG)
// The last case of the file: what the ones before have played.
TEST_CASE("faults in all: of at least 30, all but one are named rightly within 10 s") {
  if (table().empty()) return;  // this case was run alone
  const auto in_time =
      std::ranges::count_if(table(), [](const Named& of) { return of.right && of.took_s < 10; });
  std::printf("%td of %zu faults are named within 10 s\n", in_time, table().size());
  CHECK(table().size() >= 30);
  CHECK(std::size_t(in_time) + 1 >= table().size());
}
#endif
