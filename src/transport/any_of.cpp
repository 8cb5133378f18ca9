#include <ccl/detail/runtime/settings.hpp>
#include <ccl/transport/any_of.hpp>

#include <fmt/format.h>

namespace ccl::detail {

Result<void> may_choose(const char* name) {
  const auto set = setting_text("TRANSPORT");
  if (!set) return fail(set.error());
  const std::string& list = *set;
  const bool leaves_out = !list.empty() && list.front() == '^';
  bool listed = false;
  std::string word;
  const auto end_word = [&] {
    listed = listed || word == name;
    word.clear();
  };
  for (const char c : list) {
    if (c == ',' || c == ' ') {
      end_word();
    } else if (c != '^') {
      word += char(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
  }
  end_word();
  if (list.empty() || listed != leaves_out) return {};
  return fail(Errc::no_transport,
              fmt::format("{} is not to be used (CCL_TRANSPORT is {})", name, list));
}

}  // namespace ccl::detail
