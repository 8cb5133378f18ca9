#include "net/name_lookup.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/detached_call.hpp"
#include "base/fork_mutex.hpp"
#include "base/forks.hpp"
#include "base/made_once.hpp"
#include "base/thread.hpp"
#include <netdb.h>

namespace ccl::detail::net {
namespace {

struct Answer {
  int code = 0;  // of getaddrinfo
  Address address;
};

Answer ask(const std::string& host, int family, int flags) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  Answer answer;
  answer.code = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (answer.code != 0) return answer;
  const addrinfo* best = found;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (at->ai_family == AF_INET) {  // names often have IPv6 addresses without a route
      best = at;
      break;
    }
  }
  answer.address = Address{best->ai_addr, best->ai_addrlen};
  ::freeaddrinfo(found);
  return answer;
}

/// Look-ups that run. A caller that asks again for a name waits for the same one, so that a dead
/// name service holds one thread for each name.
class Lookups {
 public:
  static Lookups& instance() {
    static constinit MadeOnce<Lookups> one;
    return one.get();
  }

  Result<std::shared_future<Answer>> begin(const std::string& host, int family) {
    stay_loaded();  // before the lock, because it takes the loader's
    const std::lock_guard lock{mutex_};
    // A forked child lacks the threads of its parent.
    std::erase_if(running_, [](const auto& one) {
      return one.second.process != forks_before() || returns_within(one.second.answer, 0);
    });
    const std::pair key{host, family};
    if (const auto known = running_.find(key); known != running_.end()) return known->second.answer;
    CCL_TRY(auto answer,
            start_detached("a look-up of a name", [host, family] { return ask(host, family, 0); }));
    running_[key] = {forks_before(), answer};
    return answer;
  }

 private:
  struct Running {
    int process = 0;
    std::shared_future<Answer> answer;
  };
  std::map<std::pair<std::string, int>, Running> running_;
  ForkMutex mutex_{[this] { renew(running_); }};
};

/// Numbers need no name service.
Result<Answer> answer_of(const std::string& host, int family, double limit_s) {
  if (Answer number = ask(host, family, AI_NUMERICHOST); number.code == 0) return number;
  CCL_TRY(const auto answer, Lookups::instance().begin(host, family));
  if (returns_within(answer, limit_s)) return answer.get();
  return fail(Errc::timed_out,
              fmt::format("the name service has not answered for \"{}\" within {:.3g} s (a server "
                          "in /etc/resolv.conf, or a directory service, is down or cut off); check "
                          "them, write the address as a number, or raise CCL_INIT_TIMEOUT",
                          host, limit_s));
}

}  // namespace

Result<Address> look_up(const std::string& host, int family, double limit_s) {
  CCL_TRY(const Answer answer, answer_of(host, family, limit_s));
  if (answer.code == 0) return answer.address;
  std::string why = ::gai_strerror(answer.code);
  if (family != 0) {
    why += fmt::format(", or not as {}, which CCL_SOCKET_FAMILY asks for",
                       family == AF_INET ? "IPv4" : "IPv6");
  }
  const bool unknown =
      answer.code == EAI_NONAME || answer.code == EAI_NODATA || answer.code == EAI_AGAIN;
  return fail(unknown ? Errc::network : Errc::invalid_argument,
              fmt::format("this host knows no address of \"{}\" ({}); check the name, or write "
                          "the address as a number",
                          host, why));
}

}  // namespace ccl::detail::net
