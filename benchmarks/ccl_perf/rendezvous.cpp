#include "rendezvous.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <thread>

#include "report.hpp"
#include <sys/mman.h>

namespace ccl::perf {

Result<std::unique_ptr<Rendezvous>> Rendezvous::create(int ranks) {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(Errc::system,
                fmt::format("no memory for ranks to share ({})", std::strerror(errno)));
  }
  return std::unique_ptr<Rendezvous>{new Rendezvous{::new (memory) Shared, ranks}};
}

Rendezvous::~Rendezvous() {
  ::munmap(shared_, sizeof(Shared));
}

Result<void> Rendezvous::meet(double deadline_s) {
  const unsigned round = shared_->round.load(std::memory_order_acquire);
  if (shared_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
    shared_->arrived.store(0, std::memory_order_relaxed);
    shared_->round.store(round + 1, std::memory_order_release);
    return {};
  }
  const double until = now_s() + deadline_s;
  while (shared_->round.load(std::memory_order_acquire) == round) {
    std::this_thread::yield();
    if (now_s() > until) {
      return fail(Errc::timed_out, fmt::format("a rank has not joined within {:.0f} s "
                                               "(its calls failed, or take longer)",
                                               deadline_s));
    }
  }
  return {};
}

}  // namespace ccl::perf
