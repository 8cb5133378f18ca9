#include <ccl/comm/unique_id.hpp>
#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/text.hpp"
#include "net/rendezvous.hpp"

namespace ccl {

std::string UniqueId::to_string() const {
  std::string out;
  for (const std::byte b : bytes) out += fmt::format("{:02x}", unsigned(b));
  return out;
}

Result<UniqueId> UniqueId::from_string(std::string_view hex) {
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
    return fail(Errc::invalid_argument,
                fmt::format("this text is no unique id (it has {} characters; an id is 256 digits "
                            "0-9a-f)",
                            hex.size()));
  }
  CCL_CHECK(detail::net::unpack(id));
  return id;
}

Result<UniqueId> create_unique_id() {
  CCL_CHECK(detail::check_settings());
  CCL_TRY(const detail::net::Address where, detail::net::local_address());
  detail::net::IdContent content;
  detail::net::fill_random(content.secret);
  CCL_TRY(const detail::net::Address root, detail::net::open_root(where, content.secret, -1));
  content.root = root.wire();
  return detail::net::pack(content);
}

namespace {

bool names_this_host(std::string_view name) {
  const std::string own = detail::upper(detail::host_name()), given = detail::upper(name);
  if (own == "LOCALHOST") return false;
  return own == given || own.starts_with(given + ".") || given.starts_with(own + ".");
}

/// Returns the address that other hosts resolve for this host's name. On Debian, /etc/hosts maps
/// the own name to a loopback address, 127.0.1.1.
detail::net::Address seen_from_outside(detail::net::Address root, std::string_view address) {
  if (!root.loopback() || !names_this_host(address.substr(0, address.rfind(':')))) return root;
  auto mine = detail::net::local_address();
  if (!mine) return root;
  mine->set_port(root.port());
  return *mine;
}

}  // namespace

Result<UniqueId> unique_id_at(std::string_view address, std::string_view job_key) {
  CCL_TRY(const int family, detail::net::wanted_family());
  CCL_TRY(detail::net::Address root, detail::net::Address::parse(address, family));
  root = seen_from_outside(root, address);
  if (root.port() == 0) {
    return fail(Errc::invalid_argument,
                fmt::format("\"{}\" has port 0 (every rank must know the port)", address));
  }
  detail::net::IdContent content;
  content.root = root.wire();
  content.root_rank = 0;
  // The zone of a link-local address differs between hosts, so it is not part of the key.
  const size_t zone = std::min(address.find('%'), address.size());
  const size_t after = std::min(address.find_first_of("]:", zone), address.size());
  const std::string key =
      fmt::format("ccl {}{} {}", address.substr(0, zone), address.substr(after), job_key);
  const detail::net::Digest digest = detail::net::sha256(std::as_bytes(std::span{key}));
  std::memcpy(content.secret.data(), digest.data(), content.secret.size());
  return detail::net::pack(content);
}

Result<void> start_root(const UniqueId& id, int root_rank) {
  CCL_TRY(const detail::net::IdContent content, detail::net::unpack(id));
  CCL_TRY(const double wait_limit_s, detail::setting_seconds("INIT_TIMEOUT"));
  const auto deadline = detail::net::Deadline::after(wait_limit_s == 0 ? 1e8 : wait_limit_s);
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
}

}  // namespace ccl
