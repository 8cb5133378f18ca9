#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

#include "support/processes.hpp"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace ccl::test {

/// Connection to the health service of a process.
class RasClient {
 public:
  /// Tries for `limit_s`, because a service starts beside the communicator.
  RasClient(const std::string& address, int port, double limit_s = 5) {
    (void)wait_until([&] { return connect(address, port) || limit_s == 0; }, limit_s);
  }
  ~RasClient() { close(); }
  RasClient(RasClient&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  RasClient(const RasClient&) = delete;
  RasClient& operator=(const RasClient&) = delete;

  explicit operator bool() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  bool send(std::string_view bytes) const {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == ssize_t(bytes.size());
  }
  /// Reads until `end` is in the text, the end of the file, or a read takes longer than `limit_s`,
  /// which adds "[late]".
  std::string read(std::string_view end, double limit_s = 20) const {
    std::string all;
    while (end.empty() || all.find(end) == std::string::npos) {
      pollfd polled{fd_, POLLIN, 0};
      if (::poll(&polled, 1, int(limit_s * 1000)) <= 0) return all + "[late]";
      char bytes[4096];
      const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
      if (n <= 0) break;
      all.append(bytes, std::size_t(n));
    }
    return all;
  }

 private:
  bool connect(const std::string& address, int port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<std::uint16_t>(port));
    ::inet_pton(AF_INET, address.c_str(), &at.sin_addr);
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) return true;
    close();
    return false;
  }

  int fd_ = -1;
};

/// Asks as SGLang does: both commands in one packet, a second for each read, and JSON from the
/// first brace on. Null if that fails.
inline nlohmann::json status_of(const std::string& address, int port, std::string* raw = nullptr) {
  const RasClient client{address, port};
  if (!client || !client.send("SET FORMAT json\nSTATUS\n")) return {};
  const std::string text = client.read("", 1);
  if (raw != nullptr) *raw = text;
  const auto begin = text.find('{');
  if (begin == std::string::npos) return {};
  return nlohmann::json::parse(text.substr(begin), nullptr, false);
}

}  // namespace ccl::test
