#include "comm/lane_checks.hpp"

#include <ccl/detail/copy/work.hpp>
#include <ccl/detail/wire/call_word.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace ccl::detail {
namespace {

std::string_view type_text(const CallWord& of) {
  if (of.redop() == CallWord::no_redop) return "bytes";
  return of.type() < data_type_count ? name(DataType(of.type())) : "elements";
}
/// Text of a call, without its operation: "1000 float, sum, root 0".
std::string call_text(const CallWord& of) {
  std::string text = fmt::format("{} {}", of.count(), type_text(of));
  const auto redop = std::size_t(of.redop());
  if (redop < std::size(CallWord::redops)) text += fmt::format(", {}", CallWord::redops[redop]);
  if (of.root() != CallWord::no_root) text += fmt::format(", root {}", of.root());
  return text;
}

}  // namespace

std::string place_text(Word place) {
  if (place <= WindowPlaceWord::in_no_window) return "in no window";
  return fmt::format("at offset {} of window {}", WindowPlaceWord::offset(place),
                     WindowPlaceWord::number(place));
}

Error error_of_check(const LaneFailure& found, int me) {
  const int peer = int(found.peer) - 1;
  const CallWord mine{found.count};
  Error error;
  error.peer = peer;
  if (found.why == LaneFailure::not_a_number) {
    error.code = Errc::not_a_number;
    error.what = fmt::format(
        "element {} of the input of rank {} is NaN ({}, found before it was sent); look at what "
        "computes it",
        found.step, peer, type_text(mine));
  } else if (found.why == LaneFailure::other_place) {
    error.code = Errc::mismatch;
    error.what = fmt::format(
        "the receive buffer of rank {} is {} where that of rank {} is {} (all ranks must give the "
        "same offset of one window, or all none; a window whose last handle a rank has destroyed "
        "is none)",
        peer, place_text(found.step), me, place_text(found.count));
  } else {
    error.code = Errc::mismatch;
    error.what = fmt::format(
        "rank {} calls with {} where rank {} calls with {} (all ranks must give the same count, "
        "type, reduction and root, in the same order)",
        peer, call_text(CallWord{found.step}), me, call_text(mine));
  }
  return error;
}

}  // namespace ccl::detail
