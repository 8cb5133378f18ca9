#include "connect/idle_message.hpp"

#include <climits>
#include <cstring>

#include "base/field_check.hpp"

namespace ccl::detail {

std::optional<IdleMessage> read_idle_message(std::span<const std::byte> text, int sender, int self,
                                             std::string& why) {
  IdleMessage message;
  FieldCheck check;
  check.in_range("length of a message about idle connections", text.size(), sizeof message,
                 sizeof message);
  if (check.good()) {
    std::memcpy(static_cast<void*>(&message), text.data(), sizeof message);
    using Kind = IdleMessage::Kind;
    check.in_range("kind", int(message.kind), int(Kind::request), int(Kind::refused))
        .in_range("composition", message.composition, 0, INT_MAX)
        .in_range("connections", message.edges, 1, 3)
        .require((message.kind == Kind::request) == (sender < self),
                 "the lower of two ranks requests a close, and the higher answers");
  }
  why = check.why();
  if (!why.empty()) return {};
  return message;
}

}  // namespace ccl::detail
