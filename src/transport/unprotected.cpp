#include "transport/unprotected.hpp"

#include <ccl/comm/log.hpp>

#include <atomic>

#include "net/crypto/encryption.hpp"

namespace ccl::detail {

void warn_if_unprotected(std::string_view network) {
  static std::atomic<bool> warned{false};
  const auto wanted = net::wanted_encryption();  // a fault is an error of the connections
  if (!wanted || *wanted == net::Encryption::off || warned.exchange(true)) return;
  log_warn(LogPart::net,
           "CCL_ENCRYPTION is {}, and data goes over {}, where it is neither authenticated nor "
           "encrypted; trust that network, or set CCL_NET=Socket and leave CCL_COLLNET_ENABLE at 0",
           name(*wanted), network);
}

}  // namespace ccl::detail
