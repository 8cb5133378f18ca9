// All ranks of a communicator in one process.
#include <ccl/comm/communicator.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "base/exceptions.hpp"
#include "base/thread.hpp"
#include "comm/creation.hpp"
#include "gpu/devices.hpp"
#include "net/root.hpp"

namespace ccl {
namespace detail {
namespace {
/// Ranks of `create_all`: one thread for each but the first.
class RankThreads {
 public:
  RankThreads(const UniqueId& id, int ranks, const Config& config)
      : id_{id}, config_{config}, made_(std::size_t(ranks), fail(Errc::internal, "not created")) {
    threads_.reserve(made_.size());
  }
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;
  ~RankThreads() { end(false); }

  /// Starts the threads. The ranks begin in `end`, only if every thread could start, because each
  /// rank waits for all others.
  Result<void> start() {
    for (int r = 1; r < int(made_.size()); ++r) {
      CCL_TRY(auto thread, own_thread(fmt::format("rank {}", r), [this, r] {
                begins_.wait(Begin::waits);
                if (begins_ == Begin::yes) create(r);
              }));
      threads_.push_back(std::move(thread));
    }
    return {};
  }
  /// Creates the ranks if `begins`, and joins the threads.
  void end(bool begins) noexcept {
    begins_ = begins ? Begin::yes : Begin::no;
    begins_.notify_all();
    if (begins) create(0);
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }
  std::vector<Result<Communicator>>& made() { return made_; }

 private:
  enum class Begin { waits, no, yes };
  /// Creates rank `rank`, on device `rank`.
  void create(int rank) noexcept {
    auto& made = made_[std::size_t(rank)];
    made = without_exceptions([&] {
      Config own = config_;
      if (own.device == Config::automatic) own.device = choose_device(rank, false);
      return Communicator::create(id_, rank, int(made_.size()), std::move(own));
    });
    if (!made) net::fail_roots({&id_, 1}, made.error());
  }

  const UniqueId& id_;
  const Config& config_;
  std::vector<Result<Communicator>> made_;
  std::atomic<Begin> begins_{Begin::waits};
  std::vector<std::thread> threads_;
};

Result<std::vector<Communicator>> create_ranks(const UniqueId& id, int ranks,
                                               const Config& config) {
  RankThreads threads{id, ranks, config};
  CCL_CHECK(threads.start());
  threads.end(true);
  auto& made = threads.made();
  // The error of a rank that another one aborted does not state the cause.
  const auto says_why = [](const Result<Communicator>& one) {
    return !one && one.error().code != Errc::aborted && one.error().code != Errc::peer_lost;
  };
  const auto cause = std::find_if(made.begin(), made.end(), says_why);
  if (cause != made.end()) return fail(cause->error());
  std::vector<Communicator> all;
  for (auto& one : made) {
    CCL_TRY(auto comm, std::move(one));
    all.push_back(std::move(comm));
  }
  return all;
}
}  // namespace
}  // namespace detail

Result<std::vector<Communicator>> Communicator::create_all(int ranks, Config config) {
  return detail::without_exceptions([&]() -> Result<std::vector<Communicator>> {
    CCL_CHECK(detail::check_settings());
    CCL_CHECK(detail::check_shape(0, ranks));
    CCL_TRY(const UniqueId id, create_unique_id());
    auto all = detail::without_exceptions([&] { return detail::create_ranks(id, ranks, config); });
    if (!all) detail::net::end_root(id);
    return all;
  });
}

}  // namespace ccl
