#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ccl::detail::health {

enum class Format { text, json };
enum class Kind { status, verbose_status, diagnostics, metrics };

/// Request that the service answers once it has asked the ranks.
struct Request {
  Kind kind = Kind::status;
  Format format = Format::text;
};

/// Groups of events of `MONITOR`, as bits.
enum EventGroup : unsigned { lifecycle = 1, trace = 2 };

/// Conversation with one client, without its socket: bytes of the client in, answers out. Its
/// memory has a bound, whatever the client sends and however slowly it reads.
class Session {
 public:
  // A line that is longer ends the session. Headers of a scraper may hold long tokens.
  static constexpr std::size_t max_line_bytes = 8192;
  static constexpr std::size_t max_small_bytes = 64 << 10;

  /// Reads bytes of the client. The caller must not call it while `accepts` is false.
  void receive(std::string_view bytes);
  /// False while answers are to be sent first, and after the last command.
  bool accepts() const { return !ends_ && !request_ && small_.size() < max_small_bytes / 2; }
  /// The client sends nothing more.
  void end_of_input();

  /// Request that waits for `answer`.
  const std::optional<Request>& request() const { return request_; }
  /// Answers the question. No command follows it. Sessions may share the text.
  void answer(std::shared_ptr<const std::string> text);

  unsigned monitored() const { return ends_ ? 0 : monitored_; }  // EventGroup
  Format format() const { return format_; }
  /// Sends a line of `MONITOR`. A client that does not read ends its session.
  void event(std::string_view line);

  /// Next bytes for the client; empty if there are none now.
  std::string_view output() const;
  void sent(std::size_t bytes);
  /// True if all is sent and the connection is to be closed.
  bool done() const { return ends_ && !request_ && output().empty(); }

 private:
  void take_line(std::string_view line);
  void take_http(std::string_view line);
  void monitor(std::string_view groups);
  void set_format(std::string_view name);
  void set_timeout(std::string_view text);
  void control(std::string_view text);
  void reply(std::string_view line);
  void close() { ends_ = true; }

  std::string input_;
  std::string small_;                         // answers that are not sent yet
  std::shared_ptr<const std::string> large_;  // follows them
  std::size_t large_sent_ = 0;
  std::optional<Request> request_;
  Format format_ = Format::text;
  unsigned monitored_ = 0;
  enum class Http { no, metrics, not_found, not_allowed } http_ = Http::no;
  bool ends_ = false;
};

}  // namespace ccl::detail::health
