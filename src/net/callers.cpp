#include "net/callers.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include <fcntl.h>
#include <sys/resource.h>

namespace ccl::detail::net {
namespace {

// It may replace the answer of a listener and has its length.
constexpr std::array<char, 32> busy_notice{'c', 'c', 'l', 'b'};

std::string source_of(const Address& from) {
  const WireAddress wire = from.wire();
  if (wire.family == AF_UNIX || wire.family == 0) return "unix";
  return {reinterpret_cast<const char*>(wire.ip), wire.family == AF_INET ? 4u : sizeof wire.ip};
}

}  // namespace

std::size_t max_callers(std::size_t descriptors) {
  return std::clamp<std::size_t>(descriptors / 4, 16, 1024);
}

CallerTable& CallerTable::get() {
  static CallerTable* const table = new CallerTable;
  return *table;
}

// The limit may change in the life of a process, and is another in a forked child.
std::size_t CallerTable::max() const {
  if (fixed_max_) return *fixed_max_;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return max_callers(std::size_t(limit.rlim_cur));
}

struct CallerTable::Shares {
  std::map<std::string, std::size_t> by_source;
  std::map<const void*, std::size_t> by_listener;
};

std::optional<CallerTable::Entry> CallerTable::victim(const Shares& shares,
                                                      const CallerRecord* newcomer,
                                                      Clock::time_point now) {
  const std::size_t half = max() / 2;
  const bool of_source = newcomer && shares.by_source.at(newcomer->source) > half;
  const bool of_listener = newcomer && shares.by_listener.at(newcomer->listener) > half;
  std::optional<Entry> found;
  const auto worth = [&](const CallerRecord& place) {
    return std::pair{shares.by_source.at(place.source), !place.has_spoken};
  };
  for (auto at = places_.begin(); at != places_.end(); ++at) {
    if (&*at == newcomer || now - at->since < grace) continue;
    if (of_source && at->source != newcomer->source) continue;
    if (of_listener && !of_source && at->listener != newcomer->listener) continue;
    if (!found || worth(*at) > worth(**found)) found = at;
  }
  return found;
}

std::optional<CallerTable::Entry> CallerTable::admit(const Address& from, const void* listener,
                                                     Clock::time_point now,
                                                     std::function<void()> evict) {
  places_.push_back({source_of(from), listener, now, false, std::move(evict)});
  const auto place = std::prev(places_.end());
  const auto all = [&](auto&& like) {
    return std::size_t(std::count_if(places_.begin(), places_.end(), like));
  };
  const auto same_source = [&](const CallerRecord& s) { return s.source == place->source; };
  const auto same_listener = [&](const CallerRecord& s) { return s.listener == place->listener; };
  const std::size_t most = max();
  if (places_.size() <= most && all(same_source) <= most / 2 && all(same_listener) <= most / 2) {
    return place;
  }
  Shares shares;
  for (const CallerRecord& s : places_) {
    ++shares.by_source[s.source];
    ++shares.by_listener[s.listener];
  }
  const auto other = victim(shares, &*place, now);
  if (!other) {
    places_.erase(place);
    return {};
  }
  std::exchange((*other)->evict, {})();
  return place;
}

bool CallerTable::evict_one(Clock::time_point now) {
  Shares shares;
  for (const CallerRecord& s : places_) ++shares.by_source[s.source];
  const auto other = victim(shares, nullptr, now);
  if (other) std::exchange((*other)->evict, {})();
  return other.has_value();
}

void CallerTable::add_listener() {
  if (listeners_++ == 0 || !reserve_) reserve_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void CallerTable::remove_listener() {
  if (--listeners_ == 0) reserve_.reset();
}

bool CallerTable::turn_away(int listener) {
  if (!reserve_) return false;
  reserve_.reset();
  {
    const Fd caller{::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (caller) send_busy(caller.get());
  }
  reserve_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return bool(reserve_);
}

void send_busy(int fd) {
  (void)::send(fd, busy_notice.data(), busy_notice.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool is_busy(std::span<const std::byte> bytes) {
  return bytes.size() <= busy_notice.size() &&
         std::memcmp(bytes.data(), busy_notice.data(), bytes.size()) == 0;
}

}  // namespace ccl::detail::net
