#include "transport/collnet/library.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "plug_in/library.hpp"
#include "plug_in/symbols.hpp"

namespace ccl::detail::collnet {
namespace {

/// Calls `use` with the table of a version.
template <class F>
auto with_table(int version, const void* table, F&& use) {
  if (version == 10) return use(*static_cast<const PlugInV10*>(table));
  if (version == 11) return use(*static_cast<const PlugInV11*>(table));
  return use(*static_cast<const PlugInV12*>(table));
}

template <class Properties>
PropertiesV10 common(const Properties& of) {
  PropertiesV10 all{};
  if constexpr (requires { of.of_v10; }) {
    all = of.of_v10;
  } else {
    all.name = of.name;
    all.pci_path = of.pci_path;
    all.guid = of.guid;
    all.memory_kinds = of.memory_kinds;
    all.registers_for_all = of.registers_for_all;
    all.force_flush = of.force_flush;
    all.speed = of.speed;
    all.port = of.port;
    all.latency = of.latency;
    all.max_groups = of.max_groups;
    all.max_reduced_bytes = of.max_reduced_bytes;
  }
  return all;
}

}  // namespace

std::string code_text(int code) {
  constexpr std::array<std::string_view, 9> names{
      "success",        "unhandled CUDA error", "system error",
      "internal error", "invalid argument",     "invalid usage",
      "remote error",   "still in progress",    "timeout"};
  const bool known = code >= 0 && code < int(names.size());
  return fmt::format("{} ({})", code, known ? names[std::size_t(code)] : "unknown");
}

template <class Table>
std::string PlugIn::take(const Table* table, int version) {
  table_ = table;
  version_ = version;
  group_ = &table->group;
  const GroupFunctions& of = table->group;
  const std::array<std::pair<const char*, bool>, 12> required{{
      {"name", table->name != nullptr},
      {"init", table->init != nullptr},
      {"devices", table->devices != nullptr},
      {"getProperties", table->properties != nullptr},
      {"listen", table->listen != nullptr},
      {"connect", of.connect != nullptr},
      {"reduceSupport", of.supports != nullptr},
      {"regMr", of.register_memory != nullptr && of.deregister_memory != nullptr},
      {"iallreduce", of.all_reduce != nullptr},
      {"test", of.test != nullptr},
      {"closeColl", of.close_group != nullptr},
      {"closeListen", of.close_listener != nullptr},
  }};
  for (const auto& [what, there] : required) {
    if (!there) return fmt::format("its version {} has no {}", version, what);
  }
  return {};
}

std::string PlugIn::take(const PlugInSymbol& found) {
  library_ = found.library;
  constexpr std::string_view v12 = collnet_plug_in_symbols[0], v11 = collnet_plug_in_symbols[1];
  if (found.symbol == v12) return take(static_cast<const PlugInV12*>(found.object), 12);
  if (found.symbol == v11) return take(static_cast<const PlugInV11*>(found.object), 11);
  return take(static_cast<const PlugInV10*>(found.object), 10);
}

Result<PlugIn> PlugIn::find() {
  CCL_TRY(const std::string setting, setting_text("NET_PLUGIN"));
  PlugIn taken;
  std::string missing, incomplete;
  const auto take = [&](const PlugInSymbol& found) {
    const std::string why = taken.take(found);
    if (why.empty()) return true;
    incomplete += fmt::format("{}{}: {}", incomplete.empty() ? "" : "; ", found.library, why);
    return false;
  };
  if (each_plug_in("net", setting, collnet_plug_in_symbols, take, &missing, net_plug_in_symbols)) {
    log_info(LogPart::init, "CollNet plug-in {}", taken.text());
    return taken;
  }
  if (!missing.empty() && !incomplete.empty()) missing += "; ";
  missing += incomplete;
  return fail(Errc::no_transport,
              fmt::format("there is no plug-in for a network that reduces ({}); name its library "
                          "in CCL_NET_PLUGIN",
                          missing.empty() ? "CCL_NET_PLUGIN is none" : missing));
}

const char* PlugIn::name() const {
  return with_table(version_, table_, [](const auto& of) { return of.name; });
}

std::string PlugIn::text() const {
  return fmt::format("{} ({}, version {})", name(), library_, version_);
}

int PlugIn::init(void** context, std::uint64_t communicator) const {
  return with_table(version_, table_, [&](const auto& of) {
    if constexpr (requires { of.init(log_of_plug_in); })
      return of.init(log_of_plug_in);
    else
      return of.init(context, communicator, log_of_plug_in);
  });
}

int PlugIn::devices(int* count) const {
  return with_table(version_, table_, [&](const auto& of) { return of.devices(count); });
}

int PlugIn::properties(int device, PropertiesV10* properties) const {
  const auto read = [&]<class Properties>(int (*get)(int, Properties*)) {
    Properties all{};
    const int code = get(device, &all);
    *properties = common(all);
    return code;
  };
  return with_table(version_, table_, [&](const auto& of) { return read(of.properties); });
}

int PlugIn::listen(void* context, int device, void* handle, void** listener) const {
  return with_table(version_, table_, [&](const auto& of) {
    if constexpr (requires { of.listen(device, handle, listener); }) {
      return of.listen(device, handle, listener);
    } else {
      return of.listen(context, device, handle, listener);
    }
  });
}

int PlugIn::finalize(void* context) const {
  return with_table(version_, table_, [&](const auto& of) {
    if constexpr (requires { of.finalize; }) {
      return of.finalize == nullptr ? 0 : of.finalize(context);
    } else {
      return 0;
    }
  });
}

}  // namespace ccl::detail::collnet
