#include "transport/ib/completions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/exceptions.hpp"
#include "base/fork_mutex.hpp"
#include "base/io/os_error.hpp"
#include "base/made_once.hpp"
#include <sys/epoll.h>

namespace ccl::detail {
namespace {
constexpr int at_once = 32;            // completions of one look
constexpr int events_at_once = 64;     // the others follow at the next look
constexpr int min_entries = 1024;      // of a queue: 64 KiB
constexpr int max_entries = 16 << 10;  // which every kind of device has

/// The shared queues of the process, by engine.
struct Table {
  std::map<const ProxyEngine*, std::weak_ptr<IbCompletions>> all;
  ForkMutex mutex{[this] { renew(all); }};
  static Table& get() {
    static constinit MadeOnce<Table> one;
    return one.get();
  }
};

auto refuse(const char* what, int os_code) {
  return fail(
      os_error(Errc::system, fmt::format("cannot {} ({})", what, std::strerror(os_code)), os_code));
}
}  // namespace

struct IbCompletions::Queue {
  std::unique_ptr<IbQueue> verbs;
  int entries = 0, taken = 0;
  bool lost = false;   // it cannot be read, and takes no further queue pairs
  unsigned looks = 0;  // of tasks in their turns
};

struct IbCompletions::Device {
  std::shared_ptr<IbDevice> verbs;
  std::unique_ptr<IbCompletionChannel> channel;  // before its queues
  std::vector<std::unique_ptr<Queue>> queues;
  struct Owner {
    IbInbox* inbox;
    const Queue* queue;
  };
  std::unordered_map<std::uint32_t, Owner> owners;  // by number of the queue pair
  unsigned seen = 0;                                // events of the device

  /// Gives out one look's completions. Returns their number, or less than 0 if the queue cannot be
  /// read. What it still gives after that counts.
  int poll(Queue& queue) {
    ibv_wc done[at_once];
    const int count = queue.verbs->poll(done, at_once);
    if (count < 0) lose(queue);
    auto owner = owners.end();
    for (int n = 0; n < count; ++n) {
      if (owner == owners.end() || owner->first != done[n].qp_num) {
        owner = owners.find(done[n].qp_num);
      }
      // Its queue pair is gone, and the number may be that of one with another queue.
      if (owner == owners.end() || owner->second.queue != &queue) continue;
      IbInbox& to = *owner->second.inbox;
      if (to.completions.size() < to.completions.capacity() ||
          completes([&] { to.completions.reserve(2 * to.completions.size() + 8); })) {
        to.completions.push_back(done[n]);
      } else {
        to.lost_queue = verbs->name();
      }
    }
    return count;
  }
  void lose(Queue& queue) {
    queue.lost = true;
    for (const auto& [number, owner] : owners) {
      if (owner.queue == &queue) owner.inbox->lost_queue = verbs->name();
    }
  }
  /// A queue for so many further completions; null if none of them has room.
  Queue* with_room(int wanted) const {
    const auto found = std::find_if(queues.begin(), queues.end(), [&](const auto& queue) {
      return !queue->lost && queue->entries - queue->taken >= wanted;
    });
    return found == queues.end() ? nullptr : found->get();
  }
  /// Makes a queue as large as the others together, within limits, so that few serve many tasks.
  Result<Queue*> make_queue(int wanted) {
    int size = 0;
    for (const auto& queue : queues) size += queue->entries;
    size = std::max(wanted, std::clamp(size, min_entries, max_entries));
    auto made = std::make_unique<Queue>();
    auto opened = IbQueue::make(verbs, size, channel.get());
    if (!opened && size > wanted) {
      size = wanted;
      opened = IbQueue::make(verbs, size, channel.get());
    }
    if (!opened) return fail(std::move(opened).error());
    made->verbs = *std::move(opened);
    made->entries = size;
    queues.push_back(std::move(made));
    return queues.back().get();
  }
};

Result<std::shared_ptr<IbCompletions>> IbCompletions::of(const ProxyEngine* engine) {
  Table& table = Table::get();
  const std::lock_guard lock{table.mutex};
  std::erase_if(table.all, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<IbCompletions>& place = table.all[engine];
  if (auto known = place.lock()) return known;
  Fd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  if (!epoll) return refuse("make an epoll set", errno);
  std::shared_ptr<IbCompletions> made{new IbCompletions{std::move(epoll)}};
  place = made;
  return made;
}

IbCompletions::IbCompletions(Fd epoll) : epoll_{std::move(epoll)} {}
IbCompletions::~IbCompletions() = default;

void IbCompletions::join(IbInbox& of) {
  tasks_.push_back(&of);
  of.place = tasks_.size() - 1;
}

void IbCompletions::leave(IbInbox& of) {
  if (of.place == IbInbox::outside) return;
  tasks_[of.place] = tasks_.back();
  tasks_[of.place]->place = of.place;
  tasks_.pop_back();
  of.place = IbInbox::outside;
}

bool IbCompletions::add_source(int fd, Source source) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  sources_[fd] = source;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return true;
  const int os_code = errno;
  sources_.erase(fd);
  errno = os_code;
  return false;
}

void IbCompletions::watch(int fd, IbInbox& of) {
  if (fd >= 0) (void)add_source(fd, {&of, nullptr});
}

void IbCompletions::forget(int fd) {
  if (sources_.erase(fd) > 0) (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Result<IbCompletions::Device*> IbCompletions::open(const std::shared_ptr<IbDevice>& device) {
  for (const auto& known : devices_) {
    if (known->verbs == device) return known.get();
  }
  auto made = std::make_unique<Device>();
  made->verbs = device;
  made->seen = device->events();
  CCL_TRY(made->channel, IbCompletionChannel::make(device));
  devices_.reserve(devices_.size() + 1);
  for (const int fd : {made->channel->fd(), device->async_fd()}) {
    if (add_source(fd, {nullptr, made.get()})) continue;
    const int os_code = errno;
    forget(made->channel->fd());
    return refuse("watch the events of an RDMA device", os_code);
  }
  devices_.push_back(std::move(made));
  return devices_.back().get();
}

void IbCompletions::close_unused(Device& device) {
  std::erase_if(device.queues, [](const auto& queue) { return queue->taken == 0; });
  if (!device.queues.empty()) return;
  forget(device.channel->fd());
  forget(device.verbs->async_fd());
  std::erase_if(devices_, [&](const auto& each) { return each.get() == &device; });
}

Result<std::unique_ptr<IbCompletions::Share>> IbCompletions::share(
    const std::shared_ptr<IbDevice>& device, int entries, IbInbox& of) {
  CCL_TRY(Device* const in, open(device));
  Queue* queue = in->with_room(entries);
  if (queue == nullptr) {
    auto made = in->make_queue(entries);
    if (!made) {
      close_unused(*in);
      return fail(std::move(made).error());
    }
    queue = *made;
  }
  return std::make_unique<Share>(*this, *in, *queue, entries, of);
}

IbCompletions::Share::Share(IbCompletions& all, Device& device, Queue& queue, int entries,
                            IbInbox& of)
    : all_{all}, device_{device}, queue_{queue}, entries_{entries}, of_{of} {
  queue_.taken += entries_;
}

IbCompletions::Share::~Share() {
  for (const std::uint32_t number : numbers_) device_.owners.erase(number);
  queue_.taken -= entries_;
  // The others' completions are given out, and this share's dropped, up to those of now: no more
  // than the queue holds.
  for (int left = queue_.taken == 0 ? 0 : queue_.entries; left > 0;) {
    const int count = device_.poll(queue_);
    if (count <= 0) break;
    left -= count;
  }
  all_.close_unused(device_);
}

ibv_cq* IbCompletions::Share::queue() const {
  return queue_.verbs->get();
}

const IbDevice* IbCompletions::Share::device() const {
  return device_.verbs.get();
}

void IbCompletions::Share::add(std::uint32_t number) {
  numbers_.reserve(numbers_.size() + 1);
  device_.owners[number] = {&of_, &queue_};
  numbers_.push_back(number);
}

bool IbCompletions::Share::poll() {
  return device_.poll(queue_) > 0;
}

void IbCompletions::Share::take_turn() {
  if (seen_ == queue_.looks) {
    ++queue_.looks;
    (void)poll();
  }
  seen_ = queue_.looks;
}

bool IbCompletions::arm() {
  epoll_event ready[events_at_once];
  const int count = ::epoll_wait(epoll_.get(), ready, events_at_once, 0);
  bool came = count > 0;
  for (int n = 0; n < count; ++n) {
    const auto found = sources_.find(ready[n].data.fd);
    if (found == sources_.end()) continue;
    auto& [line, device] = found->second;
    if (line != nullptr) {
      line->aside = true;
    } else if (ready[n].data.fd != device->channel->fd()) {
      device->verbs->read_events();
    } else {
      while (const ibv_cq* const notified = device->channel->take_event()) {
        for (const auto& queue : device->queues) {
          if (queue->verbs->get() == notified) queue->verbs->rang();
        }
      }
    }
  }
  for (const auto& device : devices_) {
    for (const auto& queue : device->queues) {
      if (queue->lost) continue;
      queue->verbs->arm();
      came = device->poll(*queue) != 0 || came;
    }
    const unsigned now = device->verbs->events();
    if (std::exchange(device->seen, now) == now) continue;
    for (const auto& [number, owner] : device->owners) owner.inbox->aside = true;
    came = true;
  }
  return came;
}

}  // namespace ccl::detail
