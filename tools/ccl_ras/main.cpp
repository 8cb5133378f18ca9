// Client of the health service, with the options of NCCL's ncclras.
#include <ccl/detail/runtime/settings.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
constexpr double connect_limit_s = 1;   // for one address
constexpr double greeting_limit_s = 1;  // a process that is stopped has the port, too
constexpr double default_timeout_s = 5;
constexpr double more_s = 6;  // than the timeout, for the answer

struct Options {
  std::string host, port, format, timeout, command = "STATUS";
  bool verbose = false;
};

constexpr const char* usage =
    "usage: ccl_ras [-h HOST] [-p PORT] [-f text|json] [-t SECONDS] [-v] [-m[=GROUPS]] [-D] [-M]\n"
    "               [CONTROL ...]\n"
    "Asks a process of a running job for the state of its communicators.\n"
    "  -h, --host=HOST        host of the process (localhost)\n"
    "  -p, --port=PORT        its port (28028); both are taken from CCL_RAS_ADDR, if that is set\n"
    "  -f, --format=FORMAT    text or json\n"
    "  -t, --timeout=SECONDS  time for the answer (5); 0: no limit\n"
    "  -v, --verbose          lists every rank\n"
    "  -m, --monitor[=GROUPS] prints events until it is interrupted: lifecycle, trace, all\n"
    "  -D, --diagnostics      checks each communicator\n"
    "  -M, --metrics          prints the metrics of the process as Prometheus text\n"
    "      --help             prints this text\n";

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Connection that closes at the end of its life.
class Connection {
 public:
  explicit Connection(int fd) : fd_{fd} {}
  ~Connection() {
    if (fd_ >= 0) ::close(fd_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  explicit operator bool() const { return fd_ >= 0; }

  bool wait(short events, double limit_s) const {
    pollfd polled{fd_, events, 0};
    const int ms = limit_s <= 0 ? -1 : int(limit_s * 1000) + 1;
    return ::poll(&polled, 1, ms) > 0;
  }
  bool send(std::string line) const {
    line += '\n';
    for (std::string_view rest = line; !rest.empty();) {
      const ssize_t n = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      rest.remove_prefix(std::size_t(n));
    }
    return true;
  }
  /// Returns a line without its end, or nothing.
  std::optional<std::string> read_line(double limit_s) const {
    std::string line;
    const auto begin = Clock::now();
    for (char c = 0;;) {
      const double left = limit_s <= 0 ? 0 : limit_s - seconds_since(begin);
      if ((limit_s > 0 && left <= 0) || !wait(POLLIN, left) || ::recv(fd_, &c, 1, 0) != 1)
        return {};
      if (c == '\n') return line;
      line += c;
    }
  }
  /// Waits for an answer and returns its first bytes, which stay to be read; empty if the
  /// connection has ended. Nothing if nothing comes for so long.
  std::optional<std::string> peek(double limit_s) const {
    char bytes[16];
    if (!wait(POLLIN, limit_s)) return {};
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, MSG_PEEK);
    return std::string(bytes, n > 0 ? std::size_t(n) : 0);
  }
  /// Copies all that comes to standard output. False if nothing comes for so long.
  bool copy(double limit_s) const {
    char bytes[65536];
    for (;;) {
      if (!wait(POLLIN, limit_s)) return false;
      const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
      if (n == 0) return true;
      if (n < 0 || std::fwrite(bytes, 1, std::size_t(n), stdout) != std::size_t(n)) return false;
      std::fflush(stdout);
    }
  }

 private:
  const int fd_;
};

/// Connects to one of the addresses of the host, or returns -1 and sets `why`.
int connect_to(const Options& options, std::string& why) {
  addrinfo hints{}, *all = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int bad = ::getaddrinfo(options.host.c_str(), options.port.c_str(), &hints, &all);
  if (bad != 0) {
    why = ::gai_strerror(bad);
    return -1;
  }
  int fd = -1;
  for (const addrinfo* at = all; at != nullptr && fd < 0; at = at->ai_next) {
    const int one = ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (one < 0) continue;
    int error = ::connect(one, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      pollfd polled{one, POLLOUT, 0};
      socklen_t bytes = sizeof error;
      const bool came = ::poll(&polled, 1, int(connect_limit_s * 1000)) > 0;
      error = ETIMEDOUT;
      if (came) ::getsockopt(one, SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
    if (error == 0) {
      ::fcntl(one, F_SETFL, ::fcntl(one, F_GETFL) & ~O_NONBLOCK);
      fd = one;
      break;
    }
    why = std::strerror(error);
    ::close(one);
  }
  ::freeaddrinfo(all);
  return fd;
}

int complain(const Options& options, std::string_view why) {
  std::fprintf(stderr, "ccl_ras: %s:%s: %.*s\n", options.host.c_str(), options.port.c_str(),
               int(why.size()), why.data());
  return 1;
}

/// Sends a line whose answer must be "OK".
bool is_accepted(const Connection& to, const std::string& line, double limit_s, std::string& why) {
  if (!to.send(line)) return false;
  const auto answer = to.read_line(limit_s);
  if (answer == "OK") return true;
  why = answer.value_or("no answer to " + line);
  return false;
}

/// Asks once. Returns nothing if the process does not greet: another one may have the port, too.
std::optional<int> ask(const Options& options, const Connection& to, double timeout_s) {
  if (!to.send("CLIENT PROTOCOL 2")) return {};
  const auto greeting = to.read_line(greeting_limit_s);
  if (!greeting) return {};
  if (!greeting->starts_with("SERVER PROTOCOL ")) {
    return complain(options, "no health service is at this port (it answers " + *greeting + ")");
  }
  const double limit_s = timeout_s == 0 ? 0 : timeout_s + more_s;
  std::string why = "the connection has ended";
  if (!options.timeout.empty() && !is_accepted(to, "TIMEOUT " + options.timeout, limit_s, why)) {
    return complain(options, why);
  }
  if (!options.format.empty() && !is_accepted(to, "SET FORMAT " + options.format, limit_s, why)) {
    return complain(options, why);
  }
  const bool is_status = options.command == "STATUS";
  const bool monitors = options.command.starts_with("MONITOR");
  const bool controls = options.command.starts_with("CONTROL");
  const std::string command = (is_status && options.verbose ? "VERBOSE " : "") + options.command;
  if (monitors || controls) {
    if (!is_accepted(to, command, limit_s, why)) return complain(options, why);
    return controls || to.copy(0) ? 0 : complain(options, "the connection has ended");
  }
  if (!to.send(command)) return complain(options, why);
  const auto first = to.peek(limit_s);
  if (first && first->empty()) return complain(options, "the connection has ended, without answer");
  if (first && first->starts_with("ERROR: ")) {
    return complain(options, to.read_line(limit_s).value_or(*first));
  }
  return first && to.copy(limit_s) ? 0 : complain(options, "no answer within the limit");
}

int run(const Options& options) {
  char* end = nullptr;
  double timeout_s = default_timeout_s;
  if (!options.timeout.empty()) {
    timeout_s = std::strtod(options.timeout.c_str(), &end);
    if (*end != 0 || !(timeout_s >= 0)) {
      std::fprintf(stderr, "ccl_ras: -t %s is no number of seconds\n", options.timeout.c_str());
      return 2;
    }
  }
  const auto begin = Clock::now();
  std::string why;
  do {
    const Connection to{connect_to(options, why)};
    if (!to) return complain(options, why);
    if (const auto done = ask(options, to, timeout_s)) return *done;
  } while (timeout_s == 0 || seconds_since(begin) < timeout_s);
  return complain(options, "a process has the port and does not answer (stopped?)");
}

/// Takes the host and the port that no option names from CCL_RAS_ADDR. Returns why it cannot.
std::string take_defaults(Options& options) {
  if (!options.host.empty() && !options.port.empty()) return {};
  const auto setting = ccl::detail::setting_text("RAS_ADDR");
  if (!setting) return setting.error().what;
  const auto colon = setting->rfind(':');
  std::string host = setting->substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  if (options.host.empty()) options.host = host;
  if (options.port.empty()) options.port = setting->substr(colon + 1);
  return {};
}

/// Returns why an option cannot be, before a process is asked: empty if all can.
std::string wrong_option(const Options& options) {
  const auto is_one_of = [](std::string_view value, std::initializer_list<const char*> known) {
    return std::ranges::any_of(
        known, [&](const char* one) { return strcasecmp(one, std::string{value}.c_str()) == 0; });
  };
  if (!options.format.empty() && !is_one_of(options.format, {"text", "json"})) {
    return "-f " + options.format + " is no format; take text or json";
  }
  constexpr std::string_view monitor = "MONITOR ";
  if (!options.command.starts_with(monitor)) return {};
  const std::string groups = options.command.substr(monitor.size());
  for (std::size_t at = 0; at <= groups.size();) {
    const std::size_t end = std::min(groups.find(',', at), groups.size());
    const std::string group = groups.substr(at, end - at);
    if (!is_one_of(group, {"lifecycle", "trace", "all"})) {
      return "-m=" + group + " is no group of events; take lifecycle, trace or all";
    }
    at = end + 1;
  }
  return {};
}

bool is_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size() && port > 0 && port < 65536;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  constexpr int help = 256;
  const option names[] = {
      {"host", required_argument, nullptr, 'h'},   {"port", required_argument, nullptr, 'p'},
      {"format", required_argument, nullptr, 'f'}, {"timeout", required_argument, nullptr, 't'},
      {"verbose", no_argument, nullptr, 'v'},      {"monitor", optional_argument, nullptr, 'm'},
      {"diagnostics", no_argument, nullptr, 'D'},  {"metrics", no_argument, nullptr, 'M'},
      {"help", no_argument, nullptr, help},        {nullptr, 0, nullptr, 0}};
  for (int c; (c = ::getopt_long(argc, argv, "h:p:f:t:vm::DM", names, nullptr)) != -1;) {
    std::string value = optarg != nullptr ? optarg : "";
    if (c == 'm' && value.starts_with('=')) value.erase(0, 1);
    switch (c) {
      case 'h':
        options.host = value;
        break;
      case 'p':
        options.port = value;
        break;
      case 'f':
        options.format = value;
        break;
      case 't':
        options.timeout = value;
        break;
      case 'v':
        options.verbose = true;
        break;
      case 'm':
        options.command = value.empty() ? "MONITOR" : "MONITOR " + value;
        break;
      case 'D':
        options.command = "DIAGNOSTICS";
        break;
      case 'M':
        options.command = "METRICS";
        break;
      case help:
        std::fputs(usage, stdout);
        return 0;
      default:
        std::fputs(usage, stderr);
        return 2;
    }
  }
  for (int i = optind; i < argc; ++i) {
    options.command = i == optind ? argv[i] : options.command + " " + argv[i];
  }
  if (const std::string why = take_defaults(options); !why.empty()) {
    std::fprintf(stderr, "ccl_ras: %s\n", why.c_str());
    return 2;
  }
  if (const std::string why = wrong_option(options); !why.empty()) {
    std::fprintf(stderr, "ccl_ras: %s\n", why.c_str());
    return 2;
  }
  if (!is_port(options.port)) {
    std::fprintf(stderr, "ccl_ras: -p %s is no port, a number from 1 to 65535\n",
                 options.port.c_str());
    return 2;
  }
  return run(options);
}
