#include "transport/plug_in/events.hpp"

#include <memory>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {

/// Line whose steps up to 9 have an event.
class Line final : public LineListener {
 public:
  explicit Line(std::vector<std::string>& lines) : lines_{lines} {}
  void posted(Word, Word) noexcept override {}
  void begun(Word, Word) noexcept override {}
  void ended(Word, Word) noexcept override {}
  Word begin_of_plug_in(Word step, std::int64_t kind, void* data) noexcept override {
    if (step > 9) return 0;
    add("begin", step, kind, data);
    return ++number_;
  }
  void update_of_plug_in(Word event, void* data) noexcept override {
    add("update", event, 0, data);
  }
  void end_of_plug_in(Word event) noexcept override { add("end", event, 0, nullptr); }

 private:
  void add(const char* what, Word of, std::int64_t kind, const void* data) {
    const std::string said = data == nullptr ? "" : " " + *static_cast<const std::string*>(data);
    lines_.push_back(std::string{what} + " " + std::to_string(of) +
                     (kind == 0 ? "" : " of " + std::to_string(kind)) + said);
  }
  std::vector<std::string>& lines_;
  Word number_ = 0;
};

enum EventCall : int { start, stop, update, update_and_stop };
std::string first = "first", second = "second";
using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("events of a network plug-in go to the line of their step") {
  Lines lines;
  const auto line = std::make_shared<Line>(lines);
  NetStep of_3{line, 3}, of_4{line, 4};
  void *a = nullptr, *b = nullptr;
  CHECK(report_net_event(&a, start, &of_3, 7, &first) == net_abi::success);
  CHECK(report_net_event(&b, start, &of_4, 8, nullptr) == net_abi::success);
  REQUIRE(a != nullptr);
  CHECK((b != nullptr && a != b));
  of_3.step = 11;  // the place serves another message, while the event goes on
  CHECK(report_net_event(&a, update, nullptr, 7, &second) == net_abi::success);
  CHECK(report_net_event(&b, update_and_stop, nullptr, 8, &first) == net_abi::success);
  CHECK(report_net_event(&a, stop, nullptr, 7, nullptr) == net_abi::success);
  const Lines wanted{"begin 3 of 7 first", "begin 4 of 8", "update 1 second",
                     "update 2 first",     "end 2",        "end 1"};
  CHECK(lines == wanted);
  // They are over.
  (void)report_net_event(&a, stop, nullptr, 7, nullptr);
  (void)report_net_event(&b, update, nullptr, 8, &first);
  CHECK(lines == wanted);
}

TEST_CASE("a network plug-in gets no event for what nobody follows") {
  Lines lines;
  auto line = std::make_shared<Line>(lines);
  NetStep unknown{line, 10}, none;
  for (void* const parent :
       {static_cast<void*>(nullptr), static_cast<void*>(&unknown), static_cast<void*>(&none)}) {
    void* event = &lines;
    CHECK(report_net_event(&event, start, parent, 7, &first) == net_abi::success);
    CHECK(event == nullptr);
    for (const int type : {stop, update, update_and_stop}) {
      CHECK(report_net_event(&event, type, parent, 7, &first) == net_abi::success);
    }
  }
  CHECK(report_net_event(nullptr, start, &unknown, 7, &first) == net_abi::success);
  CHECK(lines.empty());
  // The line ends before the event.
  NetStep known{line, 1};
  void* event = nullptr;
  (void)report_net_event(&event, start, &known, 7, &first);
  REQUIRE(event != nullptr);
  line = nullptr;
  CHECK(report_net_event(&event, update_and_stop, &known, 7, &first) == net_abi::success);
  CHECK(lines == Lines{"begin 1 of 7 first"});
  // A type that the interface does not have.
  (void)report_net_event(&event, 4, nullptr, 7, nullptr);
  (void)report_net_event(&event, -1, nullptr, 7, nullptr);
}
