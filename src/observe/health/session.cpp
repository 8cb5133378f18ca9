#include "observe/health/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

#include "base/profiler_mask.hpp"
#include "base/text.hpp"

namespace ccl::detail::health {
namespace {

constexpr double max_timeout_s = 86400;

bool same(std::string_view a, std::string_view b) {
  return upper(a) == upper(b);
}
std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}
/// Splits off the first word.
std::string_view take_word(std::string_view& text) {
  text = trimmed(text);
  const auto end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text = trimmed(text.substr(end));
  return word;
}
/// Splits off the text before the next comma.
std::string_view take_item(std::string_view& list) {
  const auto end = std::min(list.find(','), list.size());
  const std::string_view item = trimmed(list.substr(0, end));
  list.remove_prefix(std::min(end + 1, list.size()));
  return item;
}
/// Text of a client inside an answer: short, and one line of printable characters.
std::string shown(std::string_view text) {
  std::string out{text.substr(0, 64)};
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}
constexpr std::array<std::string_view, 15> profiler_events{
    "group",     "coll",         "p2p",       "proxyop",  "proxystep",
    "proxyctrl", "kernelch",     "netplugin", "groupapi", "collapi",
    "p2papi",    "kernellaunch", "cecoll",    "cesync",   "cebatch"};

/// Mask that a text names, as bits in the order of `profiler_events`.
std::optional<int> mask_of(std::string_view text) {
  constexpr int all = (1 << profiler_events.size()) - 1;
  if (same(text, "none")) return 0;
  if (same(text, "all")) return all;
  if (text.empty()) return {};
  if (std::isdigit(static_cast<unsigned char>(text[0])) != 0) {
    const std::string number{text};
    char* end = nullptr;
    const auto value = std::strtoull(number.c_str(), &end, 0);
    if (*end != 0 || value > std::numeric_limits<int>::max()) return {};
    return int(value);
  }
  int mask = 0;
  while (!text.empty()) {
    const std::string_view item = take_item(text);
    const auto known = std::ranges::find_if(
        profiler_events, [&](std::string_view name) { return same(item, name); });
    if (known == profiler_events.end()) return {};
    mask |= 1 << (known - profiler_events.begin());
  }
  return mask;
}

std::string http_answer(std::string_view status, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, body.size(), body);
}

}  // namespace

void Session::receive(std::string_view bytes) {
  // Lines of a client that has asked for its last answer are dropped.
  if (ends_) return;
  input_ += bytes;
  std::size_t at = 0;
  while (accepts()) {
    const auto end = input_.find('\n', at);
    if (end == std::string::npos || end - at >= max_line_bytes) break;
    const std::string line{input_, at, end - at};
    at = end + 1;
    take_line(line);
  }
  input_.erase(0, at);
  if (request_ || ends_) {
    input_.clear();
  } else if (input_.find('\n') >= max_line_bytes && input_.size() >= max_line_bytes) {
    close();  // the line fills the room for it
  }
  input_.shrink_to_fit();
}

void Session::end_of_input() {
  if (!request_) close();
}

void Session::take_line(std::string_view line) {
  if (http_ != Http::no) return take_http(trimmed(line));
  std::string_view rest = trimmed(line);
  // A web page in a browser can send commands inside a request of its own: no line of one counts.
  if (rest.ends_with(" HTTP/1.1") || rest.ends_with(" HTTP/1.0")) {
    const bool get = rest.starts_with("GET ");
    const std::string_view target = get ? rest.substr(4, rest.rfind(' ') - 4) : rest;
    http_ = !get                                               ? Http::not_allowed
            : target.substr(0, target.find('?')) == "/metrics" ? Http::metrics
                                                               : Http::not_found;
    return;
  }
  const std::string_view whole = rest, word = take_word(rest);
  if (whole.empty()) return;
  std::string_view tail = rest;
  if (same(word, "client") && same(take_word(tail), "protocol")) return reply("SERVER PROTOCOL 2");
  if (same(word, "timeout")) return set_timeout(rest);
  if (tail = rest; same(word, "set") && same(take_word(tail), "format")) return set_format(tail);
  if (same(whole, "status")) {
    request_ = Request{Kind::status, format_};
  } else if (tail = rest;
             same(word, "verbose") && same(take_word(tail), "status") && tail.empty()) {
    request_ = Request{Kind::verbose_status, format_};
  } else if (same(whole, "metrics")) {
    request_ = Request{Kind::metrics, format_};
  } else if (same(whole, "diagnostics")) {
    if (format_ == Format::json) {
      reply("ERROR: diagnostics only supports text output");
      close();
    } else {
      request_ = Request{Kind::diagnostics, format_};
    }
  } else if (same(word, "monitor")) {
    monitor(rest);
  } else if (tail = rest; same(word, "control") && same(take_word(tail), "profiler_mask")) {
    control(tail);
  } else {
    reply(fmt::format("ERROR: Unknown command '{}'", shown(whole)));
  }
}

void Session::take_http(std::string_view line) {
  if (!line.empty()) return;  // a header
  if (http_ == Http::metrics) {
    request_ = Request{Kind::metrics, Format::text};
    return;
  }
  small_ += http_ == Http::not_found
                ? http_answer("404 Not Found", "only /metrics is here\n")
                : http_answer("405 Method Not Allowed", "only GET is allowed\n");
  close();
}

void Session::set_timeout(std::string_view text) {
  const auto [seconds, size] = leading_number(text);
  // The ranks are asked for less than a second, so that a limit of the client changes nothing.
  const bool good = size > 0 && size == text.size() && std::isfinite(seconds) && seconds >= 0 &&
                    seconds <= max_timeout_s;
  reply(good ? "OK" : fmt::format("ERROR: Invalid timeout value '{}'", shown(text)));
}

void Session::set_format(std::string_view name) {
  if (same(name, "text")) {
    format_ = Format::text;
  } else if (same(name, "json")) {
    format_ = Format::json;
  } else {
    return reply(fmt::format("ERROR: Invalid format '{}', expected text or json", shown(name)));
  }
  reply("OK");
}

void Session::monitor(std::string_view groups) {
  unsigned all = groups.empty() ? unsigned(lifecycle) : 0;
  while (!groups.empty()) {
    const std::string_view group = take_item(groups);
    if (same(group, "lifecycle")) {
      all |= lifecycle;
    } else if (same(group, "trace")) {
      all |= trace;
    } else if (same(group, "all")) {
      all |= lifecycle | trace;
    } else {
      return reply(fmt::format("ERROR: Invalid event group '{}'", shown(group)));
    }
  }
  monitored_ = all;
  reply("OK");
}

void Session::control(std::string_view text) {
  const auto mask = mask_of(text);
  if (!mask) return reply(fmt::format("ERROR: Invalid profiler mask '{}'", shown(text)));
  int* const of_plug_in = profiler_mask;
  if (of_plug_in == nullptr) {
    return reply("ERROR: no profiler plug-in is loaded, so there is no mask to set");
  }
  std::atomic_ref{*of_plug_in}.store(*mask, std::memory_order_relaxed);
  reply("OK");
}

void Session::reply(std::string_view line) {
  small_ += line;
  small_ += '\n';
}

void Session::answer(std::shared_ptr<const std::string> text) {
  if (!request_) return;
  request_.reset();
  close();
  if (http_ == Http::metrics) {
    text = std::make_shared<const std::string>(http_answer("200 OK", *text));
  }
  large_ = std::move(text);
}

void Session::event(std::string_view line) {
  if (small_.size() + line.size() + 1 > max_small_bytes) return close();
  reply(line);
}

std::string_view Session::output() const {
  if (!small_.empty()) return small_;
  if (!large_) return {};
  return std::string_view{*large_}.substr(large_sent_);
}

void Session::sent(std::size_t bytes) {
  if (small_.empty()) {
    large_sent_ += bytes;
    return;
  }
  small_.erase(0, bytes);
  if (!small_.empty()) return;
  small_.shrink_to_fit();
  receive({});  // commands that have waited for room
}

}  // namespace ccl::detail::health
