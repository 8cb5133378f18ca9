// Objects that ranks create on shared memory exist on all of them or on none.
#include <ccl/comm/communicator.hpp>

#include <mutex>
#include <optional>
#include <string>

#include "base/io/mapping.hpp"
#include "comm/state.hpp"
#include "connect/registry/buffer_registry.hpp"
#include "connect/stream_signals.hpp"
#include "support/catch.hpp"
#include "support/driver.hpp"
#include "support/error_matchers.hpp"
#include "support/fake_gpus.hpp"
#include "transport/fd_server.hpp"
#include <pthread.h>

using namespace ccl;
using namespace ccl::test;

namespace {

/// While it lives, this process can start no thread: a stack would be larger than all addresses.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_attr_init(&huge);
    ::pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
    ::pthread_setattr_default_np(&huge);
    ::pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

/// Returns the result of `open` on this rank, one of two processes. Rank 1 cannot start a thread
/// then.
template <class Open>
std::string opened(int rank, int fd, Open open) {
  UniqueId id;
  if (rank == 0) id = create_unique_id().value_or(id);
  const bool reported = rank == 0 ? ::send(fd, &id, sizeof id, MSG_NOSIGNAL) == ssize_t(sizeof id)
                                  : ::recv(fd, &id, sizeof id, MSG_WAITALL) == ssize_t(sizeof id);
  if (!reported) return "no peer";
  Config config;
  config.device = rank;
  const auto comm = Communicator::create(id, rank, 2, config);
  if (!comm) return comm.error().message();
  // The thread that hands memory out has something to do, and so is there.
  auto memory = detail::shareable_memory("a test", 4096);
  if (!memory) return memory.error().message();
  const auto offer = detail::FdOffer::make(detail::Proof{}, {}, *std::move(memory));
  if (!offer) return offer.error().message();
  detail::CommState& state = *detail::Access::state(*comm);
  const auto made = [&] {
    std::optional<NoThreads> none;
    if (rank == 1) none.emplace();
    const auto lock = state.rendezvous.lock();
    return open(state);
  }();
  if (auto well = comm->status(); !well) return well.error().message();
  char here = 1, there = 0;
  if (!swap_bytes(fd, &here, &there, 1)) return "no peer";
  return made ? "made" : made.error().what;
}

template <class Open>
void check_all_hear(const char* what, Open open) {
  INFO(what);
  FakeGpus::install(2);
  std::string here;
  const auto child = [&](int fd) -> std::string {
    const std::string said = opened(1, fd, open);
    return mentions(said, "cannot start a thread for") ? "" : said;
  };
  CHECK(alone_with_child(child, [&](int fd, pid_t) {
          here = opened(0, fd, open);
          return std::string{};
        }) == "");
  CHECK(mentions(here, "by hand is refused by rank 1 (cannot start a thread for"));
  CHECK(mentions(here, what));
}

}  // namespace

TEST_CASE("where one rank can start no thread, what needs one on all ranks is made on none") {
  check_all_hear("registry", [](detail::CommState& state) {
    return detail::BufferRegistry::open(state, 0, "by hand");
  });
  check_all_hear("signals", [](detail::CommState& state) {
    return detail::StreamSignals::open(state, 0, "by hand");
  });
}
