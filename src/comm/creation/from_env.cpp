#include <ccl/comm/communicator.hpp>
#include <ccl/comm/launcher.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include "base/exceptions.hpp"
#include "base/io/os_error.hpp"
#include "bootstrap/decline.hpp"
#include "bootstrap/launch/known_id.hpp"
#include "gpu/devices.hpp"

namespace ccl {

Result<Communicator> Communicator::from_env(Config config) {
  return detail::without_exceptions([&]() -> Result<Communicator> {
    if (auto good = detail::check_settings(); !good) {
      const auto launch = detect_launch();
      if (!launch) return fail(std::move(good).error());
      if (const auto id = detail::known_id(*launch)) {
        if (launch->rank == 0) {
          detail::decline_as_root(*id, good.error());
        } else {
          detail::decline({&*id, 1}, launch->rank, launch->ranks, good.error());
        }
      }
      return fail(detail::of_rank(launch->rank, std::move(good).error()));
    }
    CCL_TRY(const LaunchEnvironment launch, detect_launch());
    CCL_TRY(const UniqueId id, launch.ranks > 1 ? launch_id(launch) : Result<UniqueId>{UniqueId{}});
    if (config.device == Config::automatic) {
      config.device = detail::choose_device(launch.local_rank);
    }
    return create(id, launch.rank, launch.ranks, std::move(config));
  });
}

}  // namespace ccl
