#include <ccl/detail/base/handle.hpp>

#include <memory>
#include <type_traits>
#include <utility>

#include "support/catch.hpp"

namespace {

struct State {
  int number;
};
std::shared_ptr<State> moved_from() {
  static State state{-1};
  return {std::shared_ptr<void>{}, &state};  // nothing to count
}
using Handle = ccl::detail::Handle<State, moved_from>;
/// A class that holds a handle needs no copy and move functions of its own.
struct Owner {
  Handle state;
};
static_assert(std::is_copy_constructible_v<Owner> && std::is_copy_assignable_v<Owner>);
static_assert(std::is_nothrow_move_constructible_v<Owner> &&
              std::is_nothrow_move_assignable_v<Owner>);

}  // namespace

TEST_CASE("copies of a handle share its state") {
  const auto state = std::make_shared<State>(State{7});
  const Handle one{state};
  Handle other = one;
  CHECK(state.use_count() == 3);
  other->number = 8;
  CHECK((*one).number == 8);
  const std::shared_ptr<State>& shared = one;
  CHECK(shared == state);
}

TEST_CASE("a handle that was moved from stands on nobody, and may be assigned to") {
  const auto state = std::make_shared<State>(State{7});
  Owner from{Handle{state}};
  Owner to = std::move(from);
  // NOLINTBEGIN(bugprone-use-after-move)
  CHECK(from.state->number == -1);
  CHECK(to.state->number == 7);
  CHECK(state.use_count() == 2);
  from = std::move(to);
  CHECK(from.state->number == 7);
  CHECK(to.state->number == -1);
  Owner& same = from;
  from = std::move(same);
  CHECK(from.state->number == 7);
  to = from;
  CHECK(to.state->number == 7);
  CHECK(state.use_count() == 3);
  // NOLINTEND(bugprone-use-after-move)
}

TEST_CASE("a handle of nothing is nobody's") {
  const Handle nothing;
  CHECK(nothing->number == -1);
}

namespace {
int made = 0;
std::shared_ptr<State> counted() {
  static State state{(++made, -1)};
  return {std::shared_ptr<void>{}, &state};
}
}  // namespace

TEST_CASE("the state of moved-from handles exists before a handle can be moved from") {
  CHECK(made == 0);
  const ccl::detail::Handle<State, counted> handle{std::make_shared<State>(State{7})};
  CHECK(made == 1);  // a move, which throws nothing, takes no memory
}
