#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/exceptions.hpp"
#include "bootstrap/core.hpp"
#include "net/crypto/sha256.hpp"

namespace ccl::detail {

using namespace net;

Result<std::vector<int>> surviving_ranks(int rank, int ranks, std::span<const int> excluded) {
  std::vector<int> stay(static_cast<size_t>(ranks));
  std::iota(stay.begin(), stay.end(), 0);
  for (const int r : excluded) {
    if (r == rank) {
      return fail(Errc::invalid_argument,
                  fmt::format("rank {} excludes itself (those who stay call shrink, the others do "
                              "not); exclude others only",
                              r));
    }
    if (r < 0 || r >= ranks) {
      return fail(
          Errc::invalid_argument,
          fmt::format("there is no rank {} to exclude (ranks are 0 to {}); exclude those of "
                      "the communicator that shrinks",
                      r, ranks - 1));
    }
    std::erase(stay, r);
  }
  return stay;
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::shrink(std::span<const int> excluded,
                                                     const Options& options) {
  CCL_TRY(const double deadline_s, deadline_of(options));
  CCL_TRY(auto stay, surviving_ranks(rank(), ranks(), excluded));
  if (stay.size() == 1) {
    auto alone = std::make_shared<Core>(0, 1, random_secret(), deadline_s, options.status);
    alone->membership().set_members(Engine::get().lock(), {this_member(0, {})});
    return std::unique_ptr<Bootstrap>{new Bootstrap(std::move(alone))};
  }
  const std::lock_guard turn{core_->shrink().mutex()};
  Bootstrap rest{std::make_shared<Core>(*core_, std::move(stay), deadline_s)};
  const auto make = [&]() -> Result<std::unique_ptr<Bootstrap>> {
    CCL_CHECK(rest.core_->shrink().form_ring_in(*core_));
    return rest.make_child(0, 0, options, {}, "shrink", true);
  };
  auto made = without_exceptions(make);
  if (!made) {
    made = fail(rest.core_->shutdown().give_up(std::move(made).error()));
    core_->shrink().end(fail(made.error()));
    return made;
  }
  core_->shrink().end({});
  rest.core_->shutdown().close_gracefully();  // the child receives all later errors
  return made;
}

std::uint64_t Bootstrap::failed_shrinks() const noexcept {
  return core_->shrink().attempts(Engine::get().lock());
}

void Bootstrap::miss_shrink(Errc why, std::uint64_t failed) noexcept {
  core_->shrink().miss(why, failed);
}

}  // namespace ccl::detail
