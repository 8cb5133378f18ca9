#include "transport/proxied/control_socket.hpp"

#include <cerrno>

#include "base/field_check.hpp"
#include <sys/socket.h>

namespace ccl::detail {
namespace {
struct Head {
  std::uint32_t say;
  std::uint32_t bytes;
};
constexpr std::uint32_t max_bytes = 1 << 20;  // plans and error texts need less

bool would_block(int os_code) {
  return os_code == EAGAIN || os_code == EWOULDBLOCK || os_code == EINTR;
}
}  // namespace

void ControlChannel::send(std::uint32_t say, std::span<const std::byte> body) {
  const Head head{say, std::uint32_t(body.size())};
  const auto* const bytes = reinterpret_cast<const std::byte*>(&head);
  out_.insert(out_.end(), bytes, bytes + sizeof head);
  out_.insert(out_.end(), body.begin(), body.end());
  flush();
}

void ControlChannel::flush() {
  while (!out_.empty() && socket_) {
    const ssize_t sent = socket_.send(out_);
    if (sent < 0) {
      if (!would_block(errno)) out_.clear();  // `receive` finds the reason
      return;
    }
    out_.erase(out_.begin(), out_.begin() + sent);
  }
  if (socket_) (void)socket_.flush();
}

std::optional<ControlChannel::Message> ControlChannel::receive() {
  for (;;) {
    Head head{};
    if (in_.size() >= sizeof head) {
      std::memcpy(&head, in_.data(), sizeof head);
      fault_ = FieldCheck{}
                   .in_range("type of a control message", head.say, 1, std::int64_t(last_))
                   .in_range("length of a control message", head.bytes, 0, max_bytes)
                   .why();
      if (!fault_.empty()) {
        broken_ = true;
        os_code_ = EPROTO;
        return {};
      }
      if (in_.size() >= sizeof head + head.bytes) {
        const auto begin = in_.begin() + sizeof head;
        Message message{head.say, {begin, begin + head.bytes}};
        in_.erase(in_.begin(), begin + head.bytes);
        return message;
      }
    }
    if (!socket_ || broken_) return {};
    std::byte some[4096];
    const ssize_t got = socket_.recv(some);
    if (got > 0) {
      in_.insert(in_.end(), some, some + got);
    } else {
      broken_ = got == 0 || !would_block(errno);
      os_code_ = got == 0 ? 0 : errno;
      return {};
    }
  }
}

}  // namespace ccl::detail
