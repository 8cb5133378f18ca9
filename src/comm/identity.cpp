#include "comm/identity.hpp"

#include <fmt/format.h>

namespace ccl::detail {

std::string say(const Identity& identity) {
  const std::string& name = identity.config().name;
  return fmt::format("communicator {}{}of {} ranks", name, name.empty() ? "" : " ",
                     identity.ranks());
}

}  // namespace ccl::detail
