#include "bootstrap/launch/job_secret.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/io/fd.hpp"
#include "base/text.hpp"
#include "net/address.hpp"
#include "net/crypto/secret.hpp"
#include "net/crypto/sodium.hpp"
#include "net/rendezvous.hpp"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ccl::detail {
namespace {

constexpr mode_t open_to_others = S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;
constexpr std::size_t max_secret_bytes = std::size_t{64} << 10;
constexpr const char* ways =
    "set CCL_SECRET_FILE to a file that only this user can read, or CCL_SECRET, on all ranks, or "
    "use PMIx or an id of create_unique_id";

auto bad_secret(std::string what) {
  return fail(Errc::bad_setting, std::move(what));
}

Result<void> check_length(std::string_view source, const std::string& text) {
  if (text.size() >= min_secret_bytes) return {};
  return bad_secret(fmt::format("{} has {} bytes (a short secret can be guessed); give at least {}",
                                source, text.size(), min_secret_bytes));
}

/// Checks that the open file is a plain one that only its owner, this user or root, can use.
Result<void> check_access(int fd, const std::string& path) {
  struct stat found {};
  if (::fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) {
    return bad_secret(fmt::format("CCL_SECRET_FILE={} is no plain file; name one", path));
  }
  const bool owned = found.st_uid == ::geteuid() || found.st_uid == 0;
  if (owned && (found.st_mode & open_to_others) == 0) return {};
  return bad_secret(
      fmt::format("CCL_SECRET_FILE={} belongs to user {} and has mode {:04o} (others could read or "
                  "write it; this process runs as user {}); give it to this user or root, and "
                  "chmod 0600",
                  path, found.st_uid, unsigned(found.st_mode) & 07777u, ::geteuid()));
}

Result<std::string> secret_of_file(const std::string& path) {
  // A pipe without a writer must not block.
  const Fd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (!fd) {
    return bad_secret(
        fmt::format("CCL_SECRET_FILE={} cannot be read ({}); correct the path or its "
                    "permissions",
                    path, std::strerror(errno)));
  }
  CCL_CHECK(check_access(fd.get(), path));
  std::string text(max_secret_bytes, '\0');
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + bytes, text.size() - bytes);
    if (n == 0) break;
    if (n < 0 && errno != EINTR) {
      return bad_secret(
          fmt::format("CCL_SECRET_FILE={} cannot be read ({})", path, std::strerror(errno)));
    }
    if (n > 0) bytes += std::size_t(n);
  }
  if (bytes == text.size()) {
    return bad_secret(fmt::format("CCL_SECRET_FILE={} has {} bytes or more; give a shorter one",
                                  path, max_secret_bytes));
  }
  text.resize(bytes);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

bool names_this_host(std::string_view name) {
  const std::string own = upper(host_name()), given = upper(name);
  if (own == "LOCALHOST") return false;
  return own == given || own.starts_with(given + ".") || given.starts_with(own + ".");
}

/// Returns the address that other hosts resolve for this host's name. On Debian, /etc/hosts maps
/// the own name to a loopback address, 127.0.1.1.
net::Address seen_from_outside(net::Address root, std::string_view address) {
  if (!root.loopback() || !names_this_host(address.substr(0, address.rfind(':')))) return root;
  auto mine = net::local_address();
  if (!mine) return root;
  mine->set_port(root.port());
  return *mine;
}

Result<net::Address> root_address(std::string_view address, double limit_s) {
  CCL_CHECK(check_root_address(address));
  CCL_TRY(const int family, net::wanted_family());
  CCL_TRY(const net::Address root, net::Address::parse(address, family, limit_s));
  return seen_from_outside(root, address);
}

/// The words that all ranks know. The zone of a link-local address differs between hosts.
std::string public_words(std::string_view address, std::string_view job_key) {
  const size_t zone = std::min(address.find('%'), address.size());
  const size_t after = std::min(address.find_first_of("]:", zone), address.size());
  return fmt::format("ccl {}{} {}", address.substr(0, zone), address.substr(after), job_key);
}

void warn_of_public_words() {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  if (!net::has_sodium()) {
    log_warn(LogPart::init,
             "the job's secret is made of public words and there is no libsodium (who records a "
             "handshake can try words on it); install libsodium23, or {}",
             ways);
  }
  log_info(LogPart::init,
           "who knows the address of rank 0 and the run id can join this job; to prevent it, {}",
           ways);
}

Result<net::Secret> secret_of_job(const std::string& words, std::string_view address,
                                  const std::optional<std::string>& from_launcher) {
  CCL_TRY(auto text, given_secret());
  if (!text && from_launcher) {
    CCL_CHECK(check_length("the launcher's secret", *from_launcher));
    text = from_launcher;
  }
  if (text) {
    // Jobs that share a secret have different words.
    const std::string all = fmt::format("{} {}", words, *text);
    return net::secret_of_text(std::as_bytes(std::span{all}));
  }
  CCL_TRY(const bool required, setting_flag("REQUIRE_SECRET"));
  if (required) {
    return bad_secret(
        fmt::format("CCL_REQUIRE_SECRET is 1 and there is no secret for the root "
                    "at {} (only public words name the job); {}",
                    address, ways));
  }
  warn_of_public_words();
  return net::secret_of_words(words);
}

}  // namespace

Result<std::optional<std::string>> given_secret() {
  CCL_TRY(std::string text, setting_text("SECRET"));
  std::string source = "CCL_SECRET";
  if (text.empty()) {
    CCL_TRY(const std::string path, setting_text("SECRET_FILE"));
    if (path.empty()) return std::optional<std::string>{};
    source = fmt::format("CCL_SECRET_FILE={}", path);
    CCL_TRY(text, secret_of_file(path));
  }
  CCL_CHECK(check_length(source, text));
  return std::optional{std::move(text)};
}

Result<void> check_root_address(std::string_view address) {
  CCL_TRY(const net::HostAndPort given, net::split_address(address));
  if (given.port != 0) return {};
  return fail(Errc::invalid_argument,
              fmt::format("\"{}\" has port 0 (every rank must know the port)", address));
}

Result<UniqueId> id_with_secret(std::string_view address, std::string_view job_key,
                                const std::optional<std::string>& from_launcher, double limit_s) {
  CCL_TRY(const net::Address root, root_address(address, limit_s));
  net::IdContent content;
  content.root = root.wire();
  content.root_rank = 0;
  CCL_TRY(content.secret, secret_of_job(public_words(address, job_key), address, from_launcher));
  return net::pack(content);
}

}  // namespace ccl::detail
