#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/secure_socket.hpp"

namespace ccl::detail {

/// Writes and reads plain values one after the other. Reading beyond the end gives zeros, and
/// `good()` is false from then on.
class ControlWriter {
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
class ControlReader {
 public:
  explicit ControlReader(std::span<const std::byte> body) : body_{body} {}
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

/// TCP connection beside a network that says too little of its peer: it carries what the ends must
/// agree on, and reports at once that the other process has ended. Never blocks.
///
/// Messages have types from 1 to `last`.
class ControlChannel {
 public:
  struct Message {
    std::uint32_t say;
    std::vector<std::byte> body;
  };
  explicit ControlChannel(std::uint32_t last) : last_{last} {}
  ControlChannel(std::uint32_t last, net::SecureSocket socket)
      : last_{last}, socket_{std::move(socket)} {}
  int fd() const { return socket_.get(); }
  bool open() const { return bool(socket_); }
  void close() { socket_.reset(); }
  /// Sends as much as the socket takes now; `flush` sends the rest.
  void send(std::uint32_t say, std::span<const std::byte> body);
  void flush();
  bool unsent() const { return !out_.empty() || socket_.unsent(); }
  /// Returns the next whole message. After the last one, `broken()` tells if more can follow.
  std::optional<Message> receive();
  bool broken() const { return broken_; }
  int os_code() const { return os_code_; }  // 0: closed by the other end
  /// Returns what does not fit in the message after the last one, or an empty text.
  const std::string& fault() const { return fault_; }

 private:
  std::uint32_t last_;
  net::SecureSocket socket_;
  std::vector<std::byte> in_, out_;
  bool broken_ = false;
  int os_code_ = 0;
  std::string fault_;
};

/// A `ControlChannel` whose messages have the types of an enumeration, of which `close_notify` is
/// the last.
template <class Type>
class ControlSocket : public ControlChannel {
 public:
  struct Message {
    Type say;
    std::vector<std::byte> body;
  };
  explicit ControlSocket(net::SecureSocket socket = {})
      : ControlChannel{std::uint32_t(Type::close_notify), std::move(socket)} {}
  void send(Type say, std::span<const std::byte> body = {}) {
    ControlChannel::send(std::uint32_t(say), body);
  }
  std::optional<Message> receive() {
    auto any = ControlChannel::receive();
    if (!any) return {};
    return Message{Type(any->say), std::move(any->body)};
  }
};

}  // namespace ccl::detail
