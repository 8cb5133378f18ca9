#include "observe/health/service.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <algorithm>
#include <cerrno>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/exceptions.hpp"
#include "base/fork_mutex.hpp"
#include "base/network_events.hpp"
#include "base/thread.hpp"
#include "comm/state.hpp"
#include "observe/health/render.hpp"
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace ccl::detail {

void join_health_service(CommState& state) noexcept {
  const auto well = completion_of([&] { health::Service::get().join(state); });
  if (!well) log_info(LogPart::init, "no health service ({})", well.error().what);
}

void leave_health_service(CommState& state) noexcept {
  if (state.identity.is_own()) health::Service::get().leave(state);
}

namespace health {
namespace {
// SGLang waits for a second. With the time of one connection more, answers come within 0.7 s.
constexpr double ask_limit_s = 0.5;
constexpr auto fresh = std::chrono::milliseconds{200};  // an answer may be so old
constexpr auto monitor_interval = std::chrono::seconds{1};
constexpr auto sample_interval = std::chrono::milliseconds{100};
constexpr auto scraped_lately = std::chrono::seconds{120};
}  // namespace

// Initialized when the library is loaded: see `forks_before`.
const Service& Service::early_ = made();

Service& Service::get() {
  return made();
}

Service& Service::made() {
  // Never destroyed, because its thread may outlive static objects.
  alignas(Service) static std::byte place[sizeof(Service)];
  static Service* const service = [] {
    auto* s = new (place) Service;
    ::pthread_atfork(before_fork, after_fork, in_child);
    return s;
  }();
  return *service;
}

void Service::before_fork() {
  Service& s = made();
  s.held_ = lock_for_fork(s.mutex_);
}
void Service::after_fork() {
  Service& s = made();
  if (std::exchange(s.held_, false)) s.mutex_.unlock();
}
// The child has no service thread, and clients must not wait for sockets that it holds. What the
// parent's thread was using leaks.
void Service::in_child() {
  Service& s = made();
  if (std::exchange(s.held_, false)) s.mutex_.unlock();
  for (const int fd : s.client_fds_) {
    if (fd > 0) ::close(fd);
  }
  if (s.listener_fd_ >= 0) ::close(s.listener_fd_);
  if (s.event_ >= 0) ::close(s.event_);
  new (&s) Service;
}

void Service::join(CommState& state) {
  const auto enabled = setting_flag("RAS_ENABLE");
  const auto address = setting_text("RAS_ADDR");
  const auto folder = setting_text("METRICS_DIR");
  const bool answers = enabled && *enabled && address;
  if (!answers && (!folder || folder->empty())) return;
  const std::lock_guard lock{mutex_};
  if (!running_) {
    address_ = answers ? *address : std::string{};
    Fd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (!event) return log_info(LogPart::init, "no health service (no descriptor is left)");
    // A starting thread holds locks of the C library, which a child of a fork would find locked.
    // The mutex therefore stays held until the thread runs.
    auto thread = own_thread("the health service", [this] {
      born_.release();
      run();
    });
    if (!thread) return log_info(LogPart::init, "{}", thread.error().what);
    born_.acquire();
    thread->detach();
    event_ = event.release();
    running_ = true;
  }
  listing_.add(state);
  file_.resume();
}

void Service::leave(CommState& state) {
  {
    const std::lock_guard lock{mutex_};
    if (!listing_.remove(state) || !listing_.empty() || !running_) return;
    const std::uint64_t one = 1;
    if (::write(event_, &one, sizeof one) < 0) return;  // full: a wake-up is pending
  }
  file_.remove();  // here, because the process may exit before the thread has ended
  const std::lock_guard lock{mutex_};
  if (!listing_.empty()) file_.resume();  // another thread has joined meanwhile
}

void Service::run() {
  for (bool opened = false;;) {
    const auto well = completion_of([&] {
      if (!opened) open();
      opened = true;
      while (round()) {
      }
    });
    if (well) return;
    lose_log_line();  // without memory, say
    opened = true;
    while (!clients_.empty()) drop(clients_.begin());
    std::this_thread::sleep_for(sample_interval);
  }
}

void Service::open() {
  file_.configure();
  std::string address;
  {
    const std::lock_guard lock{mutex_};
    address = address_;
  }
  if (address.empty()) return;
  const auto opened = listener_.open(address);
  if (!opened) log_info(LogPart::init, "no health service ({})", opened.error().what);
  const std::lock_guard lock{mutex_};
  listener_fd_ = listener_.socket();
}

bool Service::round() {
  if (ends()) return false;
  wait_and_serve();
  answer_all();
  notify_monitors();
  take_samples();
  drop_over();
  if (file_.due()) file_.write(metrics());
  return true;
}

/// Ends the service if no communicator is left.
bool Service::ends() {
  const std::lock_guard lock{mutex_};
  if (!listing_.empty()) return false;
  // The listener first: a client that sees its end finds nobody there.
  listener_.close();
  listener_fd_ = -1;
  clients_.clear();
  client_fds_ = {};
  ::close(std::exchange(event_, -1));
  rendered_.clear();
  snapshot_ = {};
  has_snapshot_ = running_ = false;
  return true;
}

int Service::wait_ms() const {
  const auto now = net::Clock::now();
  if (listener_.is_held() ||
      (scraped_ + scraped_lately > now && scraped_ != decltype(scraped_){}) || file_.wanted()) {
    return 100;
  }
  return clients_.empty() ? -1 : 500;
}

void Service::wait_and_serve() {
  std::vector<pollfd> polled{{event_, POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
  for (const Client& client : clients_) polled.push_back({client.fd(), client.wanted(), 0});
  if (::poll(polled.data(), nfds_t(polled.size()), wait_ms()) <= 0) return;
  if (polled[0].revents != 0) {
    std::uint64_t count = 0;
    if (::read(event_, &count, sizeof count) < 0) count = 0;  // read already
  }
  std::size_t at = 2;
  for (Client& client : clients_) {
    const short events = polled[at++].revents;
    if (events != 0) client.serve(events);
  }
  if (polled[1].revents != 0) accept_all();
}

void Service::accept_all() {
  // Nobody is to make room for a caller that does not come.
  const auto one_waits = [](int fd) {
    pollfd polled{fd, POLLIN, 0};
    return fd >= 0 && ::poll(&polled, 1, 0) > 0;
  };
  while (one_waits(listener_.fd())) {
    make_room();
    // Under the mutex, so that a forked child knows all descriptors.
    const std::lock_guard lock{mutex_};
    Fd caller = listener_.accept();
    if (!caller) return;
    const auto room = std::ranges::find(client_fds_, 0);
    if (room == client_fds_.end() || caller.get() == 0) return;
    const int fd = caller.get();
    clients_.emplace_back(std::move(caller));
    *room = fd;
  }
}

/// Ends the client that has been quiet for longest if there are as many as may be. A client that
/// waits for its answer is the last to go.
void Service::make_room() {
  if (clients_.size() < max_clients) return;
  const auto order = [](const Client& of) {
    return std::pair{of.session().request().has_value(), of.active()};
  };
  drop(std::ranges::min_element(clients_, {}, order));
}

void Service::drop(std::list<Client>::iterator client) {
  const std::lock_guard lock{mutex_};
  std::ranges::replace(client_fds_, client->fd(), 0);
  clients_.erase(client);
}

void Service::drop_over() {
  for (auto at = clients_.begin(); at != clients_.end();) {
    const auto client = at++;
    if (client->is_over()) drop(client);
  }
}

void Service::answer_all() {
  for (Client& client : clients_) {
    if (client.session().request()) answer(client);
  }
}

void Service::answer(Client& client) {
  client.session().answer(rendered(*client.session().request()));
  client.serve(POLLOUT);
}

/// Returns an answer that clients share for a moment: many clients cost no more than one.
std::shared_ptr<const std::string> Service::rendered(const Request& request) {
  std::erase_if(rendered_, [](const Rendered& r) { return net::Clock::now() - r.at > fresh; });
  for (const Rendered& r : rendered_) {
    if (r.kind == request.kind && r.format == request.format) return r.text;
  }
  const auto make = [&]() -> std::string {
    switch (request.kind) {
      case Kind::metrics:
        scraped_ = net::Clock::now();
        return metrics();
      case Kind::diagnostics:
        return diagnostics_text(snapshot());
      case Kind::status:
      case Kind::verbose_status:
        break;
    }
    if (request.format == Format::json) return status_json(snapshot());
    return status_text(snapshot(), request.kind == Kind::verbose_status);
  };
  auto text = std::make_shared<const std::string>(make());
  rendered_.push_back({request.kind, request.format, net::Clock::now(), text});
  return text;
}

const Snapshot& Service::snapshot() {
  if (has_snapshot_ && net::Clock::now() - taken_ <= fresh) return snapshot_;
  std::vector<Asked> asked;
  {
    const std::lock_guard lock{mutex_};
    asked = listing_.asked();
  }
  snapshot_ = gather(std::move(asked), ask_limit_s);
  taken_ = net::Clock::now();
  has_snapshot_ = true;
  return snapshot_;
}

std::string Service::metrics() {
  std::vector<CommMetrics> all;
  {
    const std::lock_guard lock{mutex_};
    all = listing_.metrics();
  }
  return metrics_text(all, {network_events.retries.load(), network_events.failovers.load(),
                            host_name(), int(::getpid())});
}

void Service::notify_monitors() {
  const auto groups = [](const Client& of) { return of.session().monitored(); };
  if (std::ranges::none_of(clients_, [&](const Client& of) { return groups(of) != 0; })) {
    monitor_ = {};
    return;
  }
  if (net::Clock::now() - notified_ < monitor_interval) return;
  const auto events = monitor_.compare(snapshot());
  notified_ = net::Clock::now();
  for (Client& client : clients_) {
    for (const Event& event : events) {
      if ((groups(client) & event.group) == 0) continue;
      client.session().event(event_line(event, client.session().format()));
    }
    if (groups(client) != 0) client.serve(POLLOUT);
  }
}

/// Takes samples only while somebody reads the metrics.
void Service::take_samples() {
  const auto now = net::Clock::now();
  const bool scraped = scraped_ != net::Clock::time_point{} && now - scraped_ < scraped_lately;
  if ((!file_.wanted() && !scraped) || now - sampled_ < sample_interval) return;
  sampled_ = now;
  const std::lock_guard lock{mutex_};
  listing_.sample();
}

}  // namespace health
}  // namespace ccl::detail
