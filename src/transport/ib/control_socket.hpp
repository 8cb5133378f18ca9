#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/secure_socket.hpp"

namespace ccl::detail {

/// Types of messages between the ends, beside their queue pairs.
enum class IbControlType : std::uint32_t {
  offer = 1,    // sender: its ports, and the address of its slot table
  plan,         // receiver: its ports, the queue pairs between them, steps received so far
  ready,        // sender: its queue pairs work
  go,           // receiver: its queue pairs work, too
  broken,       // receiver: queue pairs failed; make an offer
  refused,      // either end: it has failed; code, rank at fault or -1, text
  close_notify  // either end: closes without an error
};

struct IbMessage {
  IbControlType say;
  std::vector<std::byte> body;
};

/// Writes and reads plain values one after the other. Reading beyond the end gives zeros, and
/// `good()` is false from then on.
class IbWriter {
 public:
  template <class T>
  void put(const T& value) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
    body.insert(body.end(), bytes, bytes + sizeof value);
  }
  template <class T>
  void put_all(const std::vector<T>& values) {
    put(std::uint32_t(values.size()));
    for (const T& value : values) put(value);
  }
  std::vector<std::byte> body;
};
class IbReader {
 public:
  explicit IbReader(std::span<const std::byte> body) : body_{body} {}
  template <class T>
  T get() {
    T value{};
    if (body_.size() < sizeof value) {
      good_ = false;
      body_ = {};
      return value;
    }
    std::memcpy(&value, body_.data(), sizeof value);
    body_ = body_.subspan(sizeof value);
    return value;
  }
  template <class T>
  std::vector<T> get_all() {
    const std::size_t count = get<std::uint32_t>();
    if (count > body_.size() / sizeof(T)) {
      good_ = false;
      return {};
    }
    std::vector<T> values(count);
    for (T& value : values) value = get<T>();
    return values;
  }
  bool good() const { return good_; }

 private:
  std::span<const std::byte> body_;
  bool good_ = true;
};

/// TCP connection beside the queue pairs. It reports at once that the other process has ended;
/// queue pairs notice only when they send. Never blocks.
class IbControlSocket {
 public:
  IbControlSocket() = default;
  explicit IbControlSocket(net::SecureSocket socket) : socket_{std::move(socket)} {}
  int fd() const { return socket_.get(); }
  bool open() const { return bool(socket_); }
  void close() { socket_.reset(); }
  /// Sends as much as the socket takes now; `flush` sends the rest.
  void send(IbControlType say, std::span<const std::byte> body = {});
  void flush();
  bool unsent() const { return !out_.empty() || socket_.unsent(); }
  /// Returns the next whole message. After the last one, `broken()` tells if more can follow.
  std::optional<IbMessage> receive();
  bool broken() const { return broken_; }
  int os_code() const { return os_code_; }  // 0: closed by the other end
  /// Returns what does not fit in the message after the last one, or an empty text.
  const std::string& fault() const { return fault_; }

 private:
  net::SecureSocket socket_;
  std::vector<std::byte> in_, out_;
  bool broken_ = false;
  int os_code_ = 0;
  std::string fault_;
};

}  // namespace ccl::detail
