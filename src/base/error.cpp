#include <ccl/types/error.hpp>

#include <fmt/format.h>

#include "base/text.hpp"

namespace ccl {

std::string_view name(Errc code) {
  switch (code) {
    case Errc::ok:
      return "ok";
    case Errc::invalid_argument:
      return "invalid_argument";
    case Errc::invalid_usage:
      return "invalid_usage";
    case Errc::mismatch:
      return "mismatch";
    case Errc::bad_setting:
      return "bad_setting";
    case Errc::no_transport:
      return "no_transport";
    case Errc::no_device_code:
      return "no_device_code";
    case Errc::out_of_memory:
      return "out_of_memory";
    case Errc::over_budget:
      return "over_budget";
    case Errc::system:
      return "system";
    case Errc::cuda:
      return "cuda";
    case Errc::network:
      return "network";
    case Errc::refused:
      return "refused";
    case Errc::timed_out:
      return "timed_out";
    case Errc::peer_lost:
      return "peer_lost";
    case Errc::aborted:
      return "aborted";
    case Errc::in_progress:
      return "in_progress";
    case Errc::not_supported:
      return "not_supported";
    case Errc::internal:
      return "internal";
    case Errc::overflow:
      return "overflow";
    case Errc::not_a_number:
      return "not_a_number";
  }
  return "unknown";
}

std::string Error::message() const {
  std::string text;
  if (rank >= 0) text += fmt::format("rank {}", rank);
  if (!host.empty()) text += fmt::format("{}on {}", text.empty() ? "" : " ", host);
  if (!text.empty()) text += ": ";
  text += fmt::format("{}: {}", name(code), detail::printable(what));  // part may be a peer's
  std::string where;
  const auto add = [&where](const std::string& part) {
    where += (where.empty() ? "" : ", ") + part;
  };
  if (peer >= 0) add(fmt::format("peer {}", peer));
  if (!transport.empty()) add("transport " + transport);
  if (os_code != 0) add(fmt::format("os {}", os_code));
  if (!where.empty()) text += " (" + where + ")";
  return text;
}

}  // namespace ccl
