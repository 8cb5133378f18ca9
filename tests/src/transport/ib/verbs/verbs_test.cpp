// The verbs boundary costs nothing without the fault layer. The table holds only the library's own
// functions, and steps do not use it. The script no_faults.cmake tests that the library's objects
// contain nothing of the fault layer.
#include "transport/ib/verbs/verbs.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "support/fake_verbs.hpp"
#include "support/skip.hpp"
#include "support/two_ranks.hpp"
#include <dlfcn.h>

using namespace ccl;
using namespace ccl::test;
using detail::Verbs;

namespace {

// A pointer for each call, and one for that of newer libraries: no switch, no state.
#define CCL_ONE(member, function) +1
constexpr std::size_t functions = 1 CCL_VERBS_CALLS(CCL_ONE);
#undef CCL_ONE
static_assert(sizeof(Verbs) == functions * sizeof(void (*)()));
static_assert(std::is_trivially_copyable_v<Verbs>);

/// The table of the moment, with every call counted on its way there.
template <auto Member>
struct Counted;
struct Counting {
  inline static Verbs under;
  inline static std::atomic<int> calls{0};
};
template <class Result, class... Arguments, Result (*Verbs::*Member)(Arguments...)>
struct Counted<Member> {
  static Result call(Arguments... arguments) {
    ++Counting::calls;
    return (Counting::under.*Member)(arguments...);
  }
};

/// Returns the calls through the table while two ranks connect, pass so many steps both ways, and
/// close.
int calls_of(Word steps) {
  FakeVerbs fabric{1};
  Counting::under = **detail::verbs();
  Counting::calls = 0;
  Verbs counted = Counting::under;
#define CCL_COUNT(member, function) counted.member = Counted<&Verbs::member>::call;
  CCL_VERBS_CALLS(CCL_COUNT)
#undef CCL_COUNT
  // Called after a thread has slept, and by the clock, so its number varies.
  counted.get_async_event = Counting::under.get_async_event;
  counted.get_cq_event = Counting::under.get_cq_event;
  counted.ack_cq_events = Counting::under.ack_cq_events;
  detail::use_verbs(&counted);
  check_fine(two_ranks({1, 8, 4096}, steps));
  CHECK(fabric.faults.writes >= 2 * int(steps));  // straight to the device
  return Counting::calls;
}

}  // namespace

TEST_CASE("the table is the library's functions, before faults and after") {
  const auto before = detail::verbs();
  if (!before) {
    return ccl::test::skip("not compared with the library: " + before.error().message());
  }
  const Verbs was = **before;
  void* const library = ::dlopen("libibverbs.so.1", RTLD_NOW);
  REQUIRE(library != nullptr);
#define CCL_TEXT(function) #function
#define CCL_SAME(member, function) \
  CHECK(reinterpret_cast<void*>(was.member) == ::dlsym(library, CCL_TEXT(function)));
  CCL_VERBS_CALLS(CCL_SAME)
#undef CCL_SAME
#undef CCL_TEXT
  CHECK(reinterpret_cast<void*>(was.reg_dmabuf_mr) == ::dlsym(library, "ibv_reg_dmabuf_mr"));
  {
    const FakeVerbs fabric{1};
    CHECK(*detail::verbs() != *before);
    CHECK(detail::verbs_are_replaced());
  }
  CHECK_FALSE(detail::verbs_are_replaced());
  REQUIRE(detail::verbs());
  CHECK(*detail::verbs() == *before);
  CHECK(std::memcmp(*detail::verbs(), &was, sizeof was) == 0);
}

TEST_CASE("a step makes no call by way of the table") {
  // The number of calls to connect varies a little, with whether one rank finds the other's device
  // open.
  const int few = calls_of(20);
  CHECK(few > 0);
  CHECK(calls_of(1000) < 2 * few);
}
