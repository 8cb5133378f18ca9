#include <ccl/comm/unique_id.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <thread>

#include "base/exceptions.hpp"
#include "bootstrap/launch/job_secret.hpp"
#include "net/rendezvous.hpp"
#include "net/root.hpp"
#include "settings/init_limit.hpp"

namespace ccl {

std::string UniqueId::to_string() const {
  std::string out;
  for (const std::byte b : bytes) out += fmt::format("{:02x}", unsigned(b));
  return out;
}

Result<UniqueId> UniqueId::from_string(std::string_view hex) {
  return detail::without_exceptions([&]() -> Result<UniqueId> {
    UniqueId id;
    const auto digit = [](char c) {
      return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    bool good = hex.size() == 2 * id.bytes.size();
    for (size_t i = 0; good && i < id.bytes.size(); ++i) {
      const int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
      good = high >= 0 && low >= 0;
      id.bytes[i] = std::byte(high * 16 + low);
    }
    if (!good) {
      return fail(
          Errc::invalid_argument,
          fmt::format("this text is no unique id (it has {} characters; an id is 256 digits "
                      "0-9a-f)",
                      hex.size()));
    }
    CCL_CHECK(detail::net::unpack(id));
    return id;
  });
}

Result<UniqueId> create_unique_id() {
  return detail::without_exceptions([&]() -> Result<UniqueId> {
    CCL_CHECK(detail::check_settings());
    CCL_TRY(const detail::net::Address where, detail::net::local_address());
    detail::net::IdContent content;
    content.secret = detail::net::random_secret();
    CCL_TRY(const detail::net::Address root, detail::net::open_root(where, content.secret, -1));
    content.root = root.wire();
    return detail::net::pack(content);
  });
}

Result<UniqueId> unique_id_at(std::string_view address, std::string_view job_key) {
  return detail::without_exceptions([&]() -> Result<UniqueId> {
    CCL_TRY(const double limit_s, detail::init_limit_s());
    return detail::id_with_secret(address, job_key, {}, limit_s);
  });
}

Result<void> start_root(const UniqueId& id, int root_rank) {
  return detail::without_exceptions([&]() -> Result<void> {
    CCL_TRY(const detail::net::IdContent content, detail::net::unpack(id));
    CCL_TRY(const double limit_s, detail::init_limit_s());
    const auto deadline = detail::net::Deadline::after(limit_s);
    for (;;) {
      const auto root =
          detail::net::open_root(detail::net::Address{content.root}, content.secret, root_rank);
      if (root) return {};
      if (root.error().os_code != EADDRINUSE) return fail(root.error());
      if (deadline.passed()) {
        Error e = root.error();
        e.what += "; another program holds the port, choose another by CCL_COMM_ID";
        return fail(std::move(e));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
}

}  // namespace ccl
