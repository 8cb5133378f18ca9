#include "transport/plug_in/context.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/detached_call.hpp"
#include "base/fork_mutex.hpp"
#include "base/forks.hpp"
#include "base/made_once.hpp"
#include "net/crypto/sha256.hpp"
#include "proxy/library_calls.hpp"
#include "settings/init_limit.hpp"
#include "transport/nic_devices.hpp"
#include "transport/plug_in/presence.hpp"

namespace ccl::detail {
namespace {

constexpr double finalize_limit_s = 1;

/// Contexts of the process, by the rank's proxy and the communicator's secret.
struct Contexts {
  using Key = std::pair<const ProxyEngine*, std::array<std::byte, 16>>;
  std::map<Key, std::weak_ptr<NetContext>> all;
  ForkMutex mutex{[this] { renew(all); }};
  static Contexts& get() {
    static constinit MadeOnce<Contexts> one;
    return one.get();
  }
};

/// Number of a communicator, equal on all ranks, that tells nothing of its secret.
std::uint64_t number_of(const TransportContext& context) {
  constexpr std::string_view use = "number of a communicator";
  const net::Digest digest =
      net::hmac_sha256(context.secret, std::as_bytes(std::span{use.data(), use.size()}));
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number;
}

}  // namespace

NetContext::NetContext(std::shared_ptr<const NetPlugIn> plug_in)
    : plug_in_{std::move(plug_in)}, process_{forks_before()} {}

bool NetContext::is_ours() const {
  return process_ == forks_before();
}

Result<void> NetContext::begin(std::uint64_t communicator) {
  const auto failed = [&](const char* function, int result) {
    return fail(plug_in_->error(function, result, "for a communicator"));
  };
  int result = plug_in_->init(&context_, communicator);
  if (result != net_abi::success) return failed("init", result);
  begun_ = true;
  int count = 0;
  result = plug_in_->devices(count);
  if (result != net_abi::success) return failed("devices", result);
  for (int n = 0; n < count; ++n) {
    result = plug_in_->properties(n, devices_.emplace_back());
    if (result != net_abi::success) return failed("getProperties", result);
  }
  if (count > 0) return {};
  return fail(Errc::network, fmt::format("the {} has no device", plug_in_->text()));
}

Result<std::shared_ptr<NetContext>> NetContext::make(std::shared_ptr<const NetPlugIn> plug_in,
                                                     std::uint64_t communicator) {
  using Made = Result<std::shared_ptr<NetContext>>;
  CCL_TRY(const auto made,
          start_detached("the start of a network plug-in", [plug_in, communicator]() -> Made {
            std::shared_ptr<NetContext> context{new NetContext{plug_in}};
            CCL_CHECK(context->begin(communicator));
            return context;
          }));
  CCL_TRY(const double limit_s, init_limit_s());
  if (returns_within(made, limit_s)) return made.get();
  // Another communicator's `finalize`, too, keeps this one's functions waiting.
  const char* const function = plug_in->running();
  return fail(Errc::timed_out, fmt::format("{} of the {} has not returned within {:.3g} s; set "
                                           "CCL_NET_PLUGIN=none, or raise CCL_INIT_TIMEOUT",
                                           function == nullptr ? "init or devices" : function,
                                           plug_in->text(), limit_s));
}

NetContext::~NetContext() {
  if (!begun_ || !is_ours() || LibraryCalls::have_ended()) return;
  const auto ended = start_detached(
      "the end of a network plug-in",
      [plug_in = plug_in_, context = context_] { return plug_in->finalize(context); });
  if (!ended) {
    log_warn(LogPart::net, "{}", ended.error().what);
  } else if (!returns_within(*ended, finalize_limit_s)) {
    log_warn(LogPart::net, "finalize of the {} has not returned within {:.3g} s", plug_in_->text(),
             finalize_limit_s);
  } else if (const int result = ended->get(); result != net_abi::success) {
    log_warn(LogPart::net, "{}", plug_in_->error("finalize", result, "for a communicator").what);
  }
}

Result<std::shared_ptr<NetContext>> NetContext::of(const TransportContext& context) {
  const Contexts::Key key{context.proxy, context.secret};
  Contexts& known = Contexts::get();
  {
    const std::lock_guard lock{known.mutex};
    const auto found = known.all.find(key);
    const auto alive = found == known.all.end() ? nullptr : found->second.lock();
    if (alive != nullptr && alive->is_ours()) return alive;
  }
  CCL_TRY(const NetPlugInPresence presence, net_plug_in_presence());
  if (presence.plug_in == nullptr) {
    return fail(Errc::no_transport, "this rank has no network plug-in; set CCL_NET_PLUGIN");
  }
  // Without the lock, because the plug-in may take long.
  CCL_TRY(auto made, make(presence.plug_in, number_of(context)));
  const std::lock_guard lock{known.mutex};
  std::erase_if(known.all, [](const auto& each) { return each.second.expired(); });
  known.all[key] = made;
  return made;
}

std::vector<int> choose_net_devices(const std::vector<NetDevice>& devices, const EdgeNics& nics,
                                    int channels, const std::string& gpu_path, int first) {
  const auto common = [&](const std::string& path) {
    std::size_t folders = 0;
    for (std::size_t at = 0; at < std::min(path.size(), gpu_path.size()); ++at) {
      if (path[at] != gpu_path[at]) break;
      if (path[at] == '/') ++folders;
    }
    return folders;
  };
  std::size_t most = 0;
  std::vector<int> near;
  for (std::size_t n = 0; n < devices.size(); ++n) {
    const std::size_t folders = common(devices[n].pci_path);
    if (near.empty() || folders > most) {
      near.clear();
      most = folders;
    }
    if (folders == most) near.push_back(int(n));
  }
  std::vector<int> chosen;
  std::map<int, int> turns;  // by NIC
  for (int c = 0; c < channels; ++c) {
    const int nic = std::size_t(c) < nics.of_wire.size() ? nics.of_wire[std::size_t(c)] : -1;
    const std::vector<int> by_topology = nic >= 0 && std::size_t(nic) < nics.names.size()
                                             ? devices_of_nic(nics.names[std::size_t(nic)], devices)
                                             : std::vector<int>{};
    const std::vector<int>& among = by_topology.empty() ? near : by_topology;
    const int turn = by_topology.empty() ? first + c : turns[nic]++;
    chosen.push_back(among[std::size_t(turn) % among.size()]);
  }
  return chosen;
}

}  // namespace ccl::detail
