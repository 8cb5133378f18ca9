#include "transport/ib/verbs/device.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include "base/fork_mutex.hpp"
#include "base/io/os_error.hpp"
#include "base/made_once.hpp"
#include "settings/report.hpp"
#include "transport/ib/verbs/port_choice.hpp"
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace ccl::detail {
namespace {

constexpr std::uintptr_t page = 4096;
constexpr std::size_t max_gids = 256;

/// Begin and end of the pages that hold the bytes.
std::pair<std::uintptr_t, std::uintptr_t> pages_of(const void* at, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(at);
  return {first / page * page, (first + bytes + page - 1) / page * page};
}

/// Open devices. A forked child cannot use its parent's and opens its own.
struct OpenDevices {
  pid_t pid = 0;
  std::map<std::string, std::weak_ptr<IbDevice>> open;
  ForkMutex mutex{[this] { renew(open); }};
};
OpenDevices& registry() {
  static constinit MadeOnce<OpenDevices> one;
  return one.get();
}

/// PCI bus address of the device's card without the function: ports of a card share it. Empty for
/// software devices.
std::string card_of(const ibv_device* device) {
  char path[PATH_MAX];
  const std::string link = fmt::format("/sys/class/infiniband/{}/device", device->name);
  if (::realpath(link.c_str(), path) == nullptr) return {};
  const std::string where{path};
  const std::string address = where.substr(where.rfind('/') + 1);
  return address.find(':') == address.npos ? std::string{} : address.substr(0, address.rfind('.'));
}

Result<std::shared_ptr<IbDevice>> open_device(const Verbs& calls, ibv_device* device) {
  OpenDevices& devices = registry();
  const std::lock_guard lock{devices.mutex};
  if (devices.pid != ::getpid()) {
    devices.open.clear();
    devices.pid = ::getpid();
  }
  std::weak_ptr<IbDevice>& known = devices.open[device->name];
  if (auto open = known.lock(); open && !open->is_dead()) return open;
  const auto refuse = [&](const char* what) {
    const int os_code = errno;
    return fail(os_error(Errc::system,
                         fmt::format("cannot {} {} ({}); see the rights on /dev/infiniband", what,
                                     device->name, std::strerror(os_code)),
                         os_code));
  };
  ibv_context* const context = calls.open_device(device);
  if (context == nullptr) return refuse("open");
  ibv_pd* const pd = calls.alloc_pd(context);
  if (pd == nullptr) {
    (void)calls.close_device(context);
    return refuse("make a protection domain of");
  }
  const int flags = ::fcntl(context->async_fd, F_GETFL);
  if (flags >= 0) (void)::fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK);
  auto opened = std::make_shared<IbDevice>(calls, context, pd, device->name);
  known = opened;
  return opened;
}

}  // namespace

IbMemory::~IbMemory() {
  (void)device_->calls().dereg_mr(region_);
}

IbDevice::IbDevice(const Verbs& calls, ibv_context* context, ibv_pd* pd, std::string name)
    : calls_{calls}, context_{context}, pd_{pd}, name_{std::move(name)} {}

IbDevice::~IbDevice() {
  (void)calls_.dealloc_pd(pd_);
  (void)calls_.close_device(context_);
}

Result<std::shared_ptr<IbMemory>> IbDevice::memory(void* at, std::size_t bytes, unsigned access) {
  const auto [begin, end] = pages_of(at, bytes);
  const std::lock_guard lock{memory_mutex_};
  std::erase_if(registered_, [](const Registered& r) { return r.memory.expired(); });
  for (const Registered& r : registered_) {
    if (r.begin > begin || r.end < end || r.access != access) continue;
    if (auto shared = r.memory.lock()) return shared;
  }
  CCL_TRY(ibv_mr* const region, register_pages(begin, end, access));
  auto made = std::make_shared<IbMemory>(shared_from_this(), region);
  registered_.push_back({begin, end, access, made});
  return made;
}

Result<std::shared_ptr<IbMemory>> IbDevice::user_memory(void* at, std::size_t bytes,
                                                        unsigned access) {
  const auto [begin, end] = pages_of(at, bytes);
  CCL_TRY(ibv_mr* const region, register_pages(begin, end, access));
  return std::make_shared<IbMemory>(shared_from_this(), region);
}

Result<ibv_mr*> IbDevice::register_pages(std::uintptr_t begin, std::uintptr_t end,
                                         unsigned access) {
  ibv_mr* const region =
      calls_.reg_mr(pd_, reinterpret_cast<void*>(begin), end - begin, begin, access);
  if (region != nullptr) return region;
  const int os_code = errno;
  rlimit limit{};
  (void)::getrlimit(RLIMIT_MEMLOCK, &limit);
  return fail(os_error(
      Errc::out_of_memory,
      fmt::format("cannot register {} bytes with {} ({}; RLIMIT_MEMLOCK is {}); raise that limit",
                  end - begin, name_, std::strerror(os_code),
                  limit.rlim_cur == RLIM_INFINITY ? "unlimited"
                                                  : fmt::format("{} KiB", limit.rlim_cur >> 10)),
      os_code));
}

Result<std::shared_ptr<IbMemory>> IbDevice::dma_buf_memory(int fd, std::size_t offset, void* at,
                                                           std::size_t bytes, unsigned access) {
  if (calls_.reg_dmabuf_mr == nullptr) {
    return fail(Errc::not_supported,
                "libibverbs registers no DMA-BUF; install that of rdma-core 34 or later");
  }
  ibv_mr* const region = calls_.reg_dmabuf_mr(
      pd_, offset, bytes, reinterpret_cast<std::uintptr_t>(at), fd, int(access));
  if (region != nullptr) return std::make_shared<IbMemory>(shared_from_this(), region);
  const int os_code = errno;
  return fail(os_error(Errc::not_supported,
                       fmt::format("{} cannot register a DMA-BUF of {} bytes ({})", name_, bytes,
                                   std::strerror(os_code)),
                       os_code));
}

void IbDevice::read_events() {
  const std::unique_lock lock{events_mutex_, std::try_to_lock};
  if (!lock) return;  // another thread reads them
  ibv_async_event event{};
  while (calls_.get_async_event(context_, &event) == 0) {
    switch (event.event_type) {
      case IBV_EVENT_PORT_ERR:
      case IBV_EVENT_PORT_ACTIVE:
      case IBV_EVENT_DEVICE_FATAL:
      case IBV_EVENT_GID_CHANGE:
      case IBV_EVENT_LID_CHANGE:
        log_warn(LogPart::net, "{}: {}", name_,
                 event.event_type == IBV_EVENT_PORT_ERR       ? "a port went down"
                 : event.event_type == IBV_EVENT_PORT_ACTIVE  ? "a port came up"
                 : event.event_type == IBV_EVENT_DEVICE_FATAL ? "the device failed"
                                                              : "a port's address changed");
        if (event.event_type == IBV_EVENT_DEVICE_FATAL) dead_.store(true);
        events_.fetch_add(1, std::memory_order_release);
        break;
      default:  // of a queue pair: its completions carry more detail
        break;
    }
    calls_.ack_async_event(&event);
  }
}

ibv_port_attr IbDevice::port(int number) const {
  ibv_port_attr attributes{};
  if (calls_.query_port(context_, std::uint8_t(number),
                        reinterpret_cast<_compat_ibv_port_attr*>(&attributes)) != 0) {
    attributes.state = IBV_PORT_NOP;
  }
  return attributes;
}

std::string IbPort::text() const {
  return fmt::format("{} port {}", device->name(), number);
}

namespace {

using Devices = std::vector<std::pair<std::string, ibv_device*>>;  // each with its card

/// Sorts devices by card, then by name.
Devices sort_devices(ibv_device** devices, int count) {
  Devices sorted;
  for (int n = 0; n < count; ++n) sorted.emplace_back(card_of(devices[n]), devices[n]);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    const std::string_view x = a.second->name, y = b.second->name;
    return std::tuple{a.first, x.size(), x} < std::tuple{b.first, y.size(), y};
  });
  return sorted;
}

IbPorts absent(IbAbsence absence, std::string why) {
  IbPorts none;
  none.absence = absence;
  none.why = std::move(why);
  return none;
}

/// Settings that select ports.
struct PortSettings {
  std::string hca;
  HcaList list;
  GidPreference wish;
  bool merge = false;

  static Result<PortSettings> read() {
    PortSettings settings;
    CCL_TRY(settings.hca, setting_text("IB_HCA"));
    CCL_TRY(settings.list, HcaList::parse(settings.hca));
    CCL_TRY(settings.wish, GidPreference::from_settings());
    CCL_TRY(settings.merge, setting_flag("IB_MERGE_NICS"));
    return settings;
  }
};

/// Collects the ports that the settings allow.
class PortSearch {
 public:
  PortSearch(const Verbs& calls, const PortSettings& settings)
      : calls_{calls}, settings_{settings} {}

  void add_device(const std::string& card, ibv_device* device) {
    auto opened = open_device(calls_, device);
    if (!opened) {
      problems_ += (problems_.empty() ? "" : "; ") + opened.error().what;
      return;
    }
    ibv_device_attr attributes{};
    if (calls_.query_device((*opened)->context(), &attributes) != 0) return;
    for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
      if (!settings_.list.accepts(device->name, number)) continue;
      any_taken_ = true;
      const ibv_port_attr port = (*opened)->port(number);
      if (port.state != IBV_PORT_ACTIVE) continue;
      any_active_ = true;
      IbPort found{*opened, number};
      found.of_ports = attributes.phys_port_cnt;
      add_port(card, device->name, std::move(found), port);
    }
  }

  Result<IbPorts> result() && {
    found_.left_out = problems_;
    if (!found_.ports.empty()) return std::move(found_);
    if (misfit_) {  // no port has what the setting demands
      misfit_->what = problems_;
      return fail(*misfit_);
    }
    found_.absence = any_active_ ? IbAbsence::no_gid : IbAbsence::not_active;
    found_.why = "no port is up";
    if (!problems_.empty()) {
      found_.absence = IbAbsence::no_gid;
      found_.why = problems_;
    } else if (!any_taken_) {
      found_.absence = IbAbsence::not_chosen;
      found_.why =
          fmt::format("{}={} takes none of its ports", variable_of("IB_HCA"), settings_.hca);
    }
    return std::move(found_);
  }

 private:
  void leave_out(const IbPort& port, const std::string& why) {
    problems_ += fmt::format("{}{}: {}", problems_.empty() ? "" : "; ", port.text(), why);
  }

  void add_port(const std::string& card, const char* device, IbPort taken,
                const ibv_port_attr& port) {
    taken.infiniband = port.link_layer != IBV_LINK_LAYER_ETHERNET;
    taken.lid = port.lid;
    taken.mtu = port.active_mtu;
    if (auto chosen = set_gid(taken); !chosen) {
      leave_out(taken, chosen.error().what);
      if (chosen.error().code == Errc::bad_setting) misfit_ = chosen.error();
      return;
    }
    const std::string nic = settings_.merge ? card : fmt::format("{}:{}", device, taken.number);
    taken.nic = cards_.try_emplace(nic, int(cards_.size())).first->second;
    found_.ports.push_back(std::move(taken));
  }

  Result<void> set_gid(IbPort& port) const {
    std::vector<ibv_gid_entry> gids(max_gids);
    const auto filled =
        calls_.query_gid_table(port.device->context(), gids.data(), gids.size(), 0, sizeof gids[0]);
    gids.resize(std::size_t(std::max<ssize_t>(filled, 0)));
    std::erase_if(gids, [&](const ibv_gid_entry& gid) { return int(gid.port_num) != port.number; });
    if (port.infiniband) {  // the first one names the port; the settings choose among those of RoCE
      if (!gids.empty()) port.gid = gids[0].gid;
      return {};
    }
    CCL_TRY(const auto gid, choose_gid(gids, settings_.wish));
    port.gid_index = int(gid.gid_index);
    port.gid = gid.gid;
    return {};
  }

  const Verbs& calls_;
  const PortSettings& settings_;
  IbPorts found_;
  bool any_taken_ = false, any_active_ = false;
  std::string problems_;
  std::optional<Error> misfit_;
  std::map<std::string, int> cards_;
};

}  // namespace

Result<IbPorts> find_ib_ports() {
  CCL_TRY(const bool disabled, setting_flag("IB_DISABLE"));
  if (disabled) return absent(IbAbsence::disabled, variable_of("IB_DISABLE") + " is 1");
  CCL_TRY(const PortSettings settings, PortSettings::read());
  if (!verbs_are_replaced() && ::access("/sys/class/infiniband", F_OK) != 0) {
    return absent(IbAbsence::no_device, "there is no RDMA device");
  }
  const auto library = verbs();
  if (!library) return absent(IbAbsence::no_library, library.error().what);
  const Verbs& calls = **library;
  int count = 0;
  ibv_device** const devices = calls.get_device_list(&count);
  if (devices == nullptr || count == 0) {
    if (devices != nullptr) calls.free_device_list(devices);
    return absent(IbAbsence::no_device, "there is no RDMA device");
  }
  PortSearch search{calls, settings};
  for (const auto& [card, device] : sort_devices(devices, count)) search.add_device(card, device);
  calls.free_device_list(devices);
  return std::move(search).result();
}

Result<std::vector<IbPortName>> ib_port_names() {
  CCL_TRY(const IbPorts found, find_ib_ports());
  std::vector<IbPortName> names;
  for (const IbPort& port : found.ports) {
    names.push_back({port.device->name(), port.number, port.infiniband});
  }
  return names;
}

Result<IbPresence> ib_presence() {
  CCL_TRY(const IbPorts found, find_ib_ports());
  IbPresence presence;
  presence.absence = found.absence;
  for (const IbPort& port : found.ports) presence.kinds |= port.infiniband ? 1 : 2;
  if (found.absence != IbAbsence::none && found.absence != IbAbsence::no_device) {
    log_info(LogPart::net, "no RDMA here: {}", found.why);
  } else if (!found.left_out.empty()) {
    log_info(LogPart::net, "RDMA ports that are not used: {}", found.left_out);
  }
  return presence;
}

}  // namespace ccl::detail
