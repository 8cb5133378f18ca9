#include "transport/plug_in/presence.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "base/detached_call.hpp"
#include "base/fork_mutex.hpp"
#include "base/forks.hpp"
#include "base/made_once.hpp"
#include "base/text.hpp"
#include "plug_in/symbols.hpp"
#include "settings/init_limit.hpp"
#include "settings/report.hpp"

namespace ccl::detail {
namespace {

std::atomic<bool> looks_unasked{false};

struct Found {
  std::shared_ptr<const NetPlugIn> plug_in;  // null: none works
  std::string why;                           // then
};

/// Initializes a plug-in and looks at its devices. Returns what is wrong, or an empty text.
std::string trial(const NetPlugIn& plug_in) {
  void* context = nullptr;
  const auto failed = [&](const char* function, int result) {
    return plug_in.error(function, result, "at the first look").what;
  };
  if (const int result = plug_in.init(&context, 0); result != net_abi::success) {
    return failed("init", result);
  }
  int count = 0;
  std::string wrong;
  NetDevice first;
  if (const int result = plug_in.devices(count); result != net_abi::success) {
    wrong = failed("devices", result);
  } else if (count <= 0) {
    wrong = fmt::format("the {} has no device", plug_in.text());
  } else if (const int looked = plug_in.properties(0, first); looked != net_abi::success) {
    wrong = failed("getProperties", looked);
  } else if (!first.by_host) {
    wrong = fmt::format("{} of the {} needs GPU code of its own", first.name, plug_in.text());
  } else if ((first.memory & net_abi::host_memory) == 0) {
    wrong = fmt::format("{} of the {} takes no host memory", first.name, plug_in.text());
  }
  (void)plug_in.finalize(context);
  if (wrong.empty()) log_info(LogPart::net, "using the {}, {} devices", plug_in.text(), count);
  return wrong;
}

/// `wanted`: the name in small letters; empty: any.
Found look_for(const std::string& libraries, const std::string& wanted) {
  Found found;
  std::string others;
  const auto leave_out = [&](const std::string& why) {
    log_info(LogPart::net, "a network plug-in is left out: {}", why);
    others += others.empty() ? why : "; " + why;
    return false;
  };
  const auto take = [&](const PlugInSymbol& symbol) {
    auto made = NetPlugIn::of(symbol);
    if (!made) return leave_out(made.error().what);
    std::shared_ptr<const NetPlugIn> plug_in = *std::move(made);
    if (!wanted.empty() && lower(plug_in->name()) != wanted) {
      return leave_out(fmt::format("{} has {}", symbol.library, plug_in->name()));
    }
    if (const std::string wrong = trial(*plug_in); !wrong.empty()) return leave_out(wrong);
    found.plug_in = std::move(plug_in);
    return true;
  };
  (void)each_plug_in("net", libraries, NetPlugIn::symbols, take, &found.why,
                     collnet_plug_in_symbols);
  if (!others.empty()) found.why += found.why.empty() ? others : "; " + others;
  if (found.why.empty()) found.why = "CCL_NET_PLUGIN is none";
  return found;
}

/// Searches of the process, which are made on threads of their own: a plug-in may never return.
struct Searches {
  using Key = std::tuple<std::string, std::string, int>;  // libraries, name, forks
  std::map<Key, std::shared_future<Found>> all;
  ForkMutex mutex{[this] { renew(all); }};
  static Searches& get() {
    static constinit MadeOnce<Searches> one;
    return one.get();
  }
};

Result<Found> search(const std::string& libraries, const std::string& wanted) {
  std::shared_future<Found> result;
  {
    Searches& known = Searches::get();
    const std::lock_guard lock{known.mutex};
    auto& place = known.all[{libraries, wanted, forks_before()}];
    if (!place.valid()) {
      CCL_TRY(place, start_detached("the search for a network plug-in",
                                    [=] { return look_for(libraries, wanted); }));
    }
    result = place;
  }
  CCL_TRY(const double limit_s, init_limit_s());
  if (returns_within(result, limit_s)) return result.get();
  return fail(Errc::timed_out,
              fmt::format("the network plug-in of {} has not begun within {:.3g} s (its init or "
                          "devices has not returned); set CCL_NET_PLUGIN=none, or raise "
                          "CCL_INIT_TIMEOUT",
                          libraries.empty() ? "libnccl-net.so" : libraries, limit_s));
}

/// FNV-1a, never 0.
std::uint64_t id_of(const std::string& name) {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325u;
  for (const char c : lower(name)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3u;
  return hash | 1;
}

}  // namespace

void look_for_default_net_plug_in() {
  looks_unasked = true;
}

Result<NetPlugInPresence> net_plug_in_presence() {
  CCL_TRY(const std::string libraries, setting_text("NET_PLUGIN"));
  CCL_TRY(const std::string named, setting_text("NET"));
  const std::string wanted = lower(named);
  NetPlugInPresence presence;
  if (wanted == "ib" || wanted == "socket") {
    presence.absence = NetPlugInAbsence::not_chosen;
    return presence;
  }
  const bool asked = !wanted.empty() || (!libraries.empty() && libraries != "none");
  if (!asked && (!libraries.empty() || !looks_unasked.load())) {
    presence.absence = NetPlugInAbsence::not_asked;
    return presence;
  }
  CCL_TRY(const Found found, search(libraries, wanted));
  if (found.plug_in == nullptr) {
    if (!wanted.empty()) {
      return fail(Errc::bad_setting,
                  fmt::format("{}={} names no network of this process ({}); it takes IB, Socket or "
                              "the name of a network plug-in that CCL_NET_PLUGIN loads",
                              variable_of("NET"), named, found.why));
    }
    presence.absence = NetPlugInAbsence::not_found;
    return presence;
  }
  presence.plug_in = found.plug_in;
  presence.id = id_of(found.plug_in->name());
  presence.only = asked;
  return presence;
}

std::string net_plug_in_name() {
  const auto presence = net_plug_in_presence();
  return presence && presence->plug_in ? presence->plug_in->name() : "plugin";
}

}  // namespace ccl::detail
