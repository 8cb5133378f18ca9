#include "net/callers.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace ccl::detail::net;

namespace {

/// Table of `max` callers, and the callers that it has evicted, in order.
struct Crowd {
  explicit Crowd(std::size_t max) : table{max} {}
  std::optional<CallerTable::Entry> come(const std::string& from, int name, int at_ms,
                                         const void* listener = nullptr) {
    places.resize(std::max(places.size(), std::size_t(name) + 1));
    const auto place =
        table.admit(Address::parse(from + ":1").value(), listener,
                    Clock::time_point{} + std::chrono::milliseconds{at_ms}, [this, name] {
                      evicted.push_back(name);
                      table.leave(*places[std::size_t(name)]);
                    });
    places[std::size_t(name)] = place;
    return place;
  }
  CallerTable table;
  std::vector<std::optional<CallerTable::Entry>> places;
  std::vector<int> evicted;
};

}  // namespace

TEST_CASE("a caller keeps its place for a while, however many come") {
  Crowd crowd{8};
  const int listeners[2] = {};
  for (int n = 0; n < 4; ++n) CHECK(crowd.come("10.0.0.1", n, 0, &listeners[0]));
  CHECK_FALSE(crowd.come("10.0.0.1", 9, 100, &listeners[1]));  // half of the places have its source
  CHECK_FALSE(crowd.come("10.0.0.2", 9, 100, &listeners[0]));  // and its listener
  for (int n = 4; n < 8; ++n) CHECK(crowd.come("10.0.0.2", n, 100, &listeners[1]));
  CHECK_FALSE(crowd.come("10.0.0.3", 9, 400, &listeners[1]));
  CHECK(crowd.evicted.empty());
  CHECK(crowd.table.size() == 8);
}

TEST_CASE("a slow caller makes room: of its source, silent ones first, the oldest first") {
  Crowd crowd{8};
  const int listeners[3] = {};
  for (int n = 0; n < 4; ++n) CHECK(crowd.come("10.0.0.1", n, n, &listeners[n % 2]));
  for (int n = 4; n < 6; ++n) CHECK(crowd.come("10.0.0.2", n, 0, &listeners[2]));
  (*crowd.places[0])->has_spoken = true;
  CHECK(crowd.come("10.0.0.1", 6, 600, &listeners[2]));
  CHECK(crowd.evicted == std::vector{1});
  CHECK(crowd.come("10.0.0.3", 7, 600, &listeners[2]));
  CHECK(crowd.come("10.0.0.4", 8, 600, &listeners[0]));
  CHECK(crowd.evicted == std::vector{1});
  CHECK(crowd.come("10.0.0.5", 9, 600, &listeners[1]));  // of the source with most places
  CHECK(crowd.evicted == std::vector{1, 2});
}

TEST_CASE("callers get a quarter of a process's descriptors") {
  CHECK(max_callers(20) == 16);
  CHECK(max_callers(1024) == 256);
  CHECK(max_callers(1'000'000) == 1024);
}
