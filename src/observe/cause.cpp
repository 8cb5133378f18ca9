#include <ccl/comm/report.hpp>

namespace ccl {

std::string_view name(Cause cause) {
  constexpr std::string_view names[] = {
      "none",          "not_called",      "other_operation", "other_type",
      "other_count",   "other_reduction", "other_root",      "other_step",
      "communicators", "queued",          "no_place",        "no_answer",
      "silent_link",   "stuck_proxy",     "circle",          "working"};
  return names[int(cause)];
}

bool certain(Cause cause) {
  switch (cause) {
    case Cause::other_operation:
    case Cause::other_type:
    case Cause::other_count:
    case Cause::other_reduction:
    case Cause::other_root:
    case Cause::other_step:
    case Cause::communicators:
    case Cause::no_answer:
    case Cause::silent_link:
    case Cause::stuck_proxy:
      return true;
    default:
      return false;
  }
}

}  // namespace ccl
