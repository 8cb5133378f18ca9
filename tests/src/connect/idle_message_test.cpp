#include "connect/idle_message.hpp"

#include <span>
#include <string>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"

using namespace ccl::detail;
using ccl::test::mentions;
using Kind = IdleMessage::Kind;

namespace {
std::string refusal(const IdleMessage& message, int sender, int self) {
  std::string why;
  const auto read = read_idle_message(std::as_bytes(std::span{&message, 1}), sender, self, why);
  CHECK(read.has_value() == why.empty());
  if (read) CHECK(read->received == message.received);
  return why;
}
}  // namespace

TEST_CASE("the lower of two ranks requests a close, and the higher answers") {
  const IdleMessage request{Kind::request, 2, 7, IdleMessage::up | IdleMessage::down, 30, 40};
  CHECK(refusal(request, 0, 1).empty());
  CHECK(mentions(refusal(request, 1, 0), "the lower of two ranks requests"));
  for (const Kind kind : {Kind::closed, Kind::refused}) {
    IdleMessage answer = request;
    answer.kind = kind;
    CHECK(refusal(answer, 1, 0).empty());
    CHECK(mentions(refusal(answer, 0, 1), "the higher answers"));
  }
}

TEST_CASE("a message with a field that does not fit is refused by the field's name") {
  const auto changed = [](auto change) {
    IdleMessage message{Kind::request, 0, 1, IdleMessage::up, 0, 0};
    change(message);
    return refusal(message, 0, 1);
  };
  CHECK(mentions(changed([](IdleMessage& m) { m.kind = Kind(3); }), "kind is 3, not from 0 to 2"));
  CHECK(mentions(changed([](IdleMessage& m) { m.composition = -1; }), "composition is -1"));
  CHECK(mentions(changed([](IdleMessage& m) { m.edges = 0; }), "connections is 0, not from 1"));
  CHECK(mentions(changed([](IdleMessage& m) { m.edges = 4; }), "connections is 4, not from 1"));
  std::string why;
  const std::byte few[4] = {};
  CHECK(!read_idle_message(few, 0, 1, why));
  CHECK(mentions(why, "length of a message about idle connections is 4"));
}
