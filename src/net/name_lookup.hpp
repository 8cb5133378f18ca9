#pragma once

#include <ccl/types/result.hpp>

#include <string>

#include "net/address.hpp"

namespace ccl::detail::net {

/// Returns an address of the host with port 0, an IPv4 one if it has any. `family` restricts it; 0
/// allows any. `host` is a name or a number.
///
/// The name service may never answer, so a name is looked up on a thread of its own.
/// `Errc::timed_out`: the service has not answered within `limit_s` seconds.
/// `Errc::network`: it knows no such name.
Result<Address> look_up(const std::string& host, int family, double limit_s);

}  // namespace ccl::detail::net
