#include <ccl/detail/base/spare.hpp>

#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using ccl::detail::Spares;
using ccl::detail::SpareVector;

TEST_CASE("a vector is in the memory of an earlier one of the thread, and empty") {
  const int* first = nullptr;
  {
    SpareVector<int> one;
    one->assign(100, 7);
    first = one->data();
    SpareVector<int> other;  // at the same time
    other->push_back(1);
    CHECK(other->data() != first);
  }
  SpareVector<int> next;
  CHECK(next->empty());
  CHECK(next->capacity() >= 100);
  CHECK(next->data() == first);
  std::thread{[first] {
    SpareVector<int> elsewhere;
    elsewhere->push_back(1);
    CHECK(elsewhere->data() != first);
  }}.join();
}

TEST_CASE("what is left keeps its elements, and their memory") {
  std::vector<std::vector<int>> lists(3);
  lists[1].assign(50, 2);
  const int* const data = lists[1].data();
  Spares<std::vector<int>>::leave(std::move(lists));
  const auto taken = Spares<std::vector<int>>::take();
  REQUIRE(taken.size() == 3);
  CHECK(taken[1].data() == data);
  CHECK(Spares<std::vector<int>>::take().empty());
}

TEST_CASE("a thread may leave vectors while it ends") {
  struct Late {
    int one = 1;
    ~Late() {
      SpareVector<long> held;
      held->push_back(one);
    }
  };
  std::thread{[] {
    thread_local Late late;  // before the thread's spares, so destroyed after them
    SpareVector<long> other;
    other->push_back(late.one);
  }}.join();
}
