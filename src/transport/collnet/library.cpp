#include "transport/collnet/library.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/exceptions.hpp"
#include <dlfcn.h>

namespace ccl::detail::collnet {
namespace {

/// Returns a library, or the program for its own symbols; null if it cannot be opened.
void* open(const std::string& name) {
  if (name == "STATIC_PLUGIN") return ::dlopen(nullptr, RTLD_NOW | RTLD_LOCAL);
  if (void* const found = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
  const bool whole =
      name.find('/') != name.npos || (name.starts_with("lib") && name.ends_with(".so"));
  if (whole) return nullptr;
  return ::dlopen(fmt::format("libnccl-net-{}.so", name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// Function that plug-ins log by. Its levels are NCCL's.
void log_of_plug_in(int level, unsigned long, const char* file, int line, const char* format, ...) {
  constexpr int warn = 2, trace = 5, attention = 6;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  const LogLevel as = level == warn || level == attention ? LogLevel::warn
                      : level == trace                    ? LogLevel::trace
                                                          : LogLevel::info;
  const auto write = [&] {
    log(as, LogPart::net, "CollNet plug-in: {} ({}:{})", text, file == nullptr ? "?" : file, line);
  };
  if (!completes(write)) lose_log_line();
}

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

std::string PlugIn::take(void* library) {
  if (const void* const table = ::dlsym(library, symbol_v12)) {
    return take(static_cast<const PlugInV12*>(table), 12);
  }
  if (const void* const table = ::dlsym(library, symbol_v11)) {
    return take(static_cast<const PlugInV11*>(table), 11);
  }
  if (const void* const table = ::dlsym(library, symbol_v10)) {
    return take(static_cast<const PlugInV10*>(table), 10);
  }
  return fmt::format("it has none of {}, {} and {}", symbol_v12, symbol_v11, symbol_v10);
}

Result<PlugIn> PlugIn::find() {
  CCL_TRY(const std::string setting, setting_text("NET_PLUGIN"));
  const std::string names = setting.empty() ? "libnccl-net.so" : setting;
  std::string reasons;
  for (std::size_t at = 0; at <= names.size() && setting != "none";) {
    const auto end = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, end - at);
    at = end + 1;
    if (name.empty()) continue;
    std::string why;
    if (void* const library = open(name)) {
      PlugIn found;
      found.library_ = name;
      why = found.take(library);
      if (why.empty()) {
        log_info(LogPart::init, "CollNet plug-in {}", found.text());
        return found;
      }
      ::dlclose(library);
    } else {
      const char* const reason = ::dlerror();
      why = reason == nullptr ? "it cannot be loaded" : reason;
    }
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, why);
  }
  if (setting == "none") reasons = "CCL_NET_PLUGIN is none";
  return fail(Errc::no_transport,
              fmt::format("there is no plug-in for a network that reduces ({}); name its library "
                          "in CCL_NET_PLUGIN",
                          reasons));
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
