#include "plug_in/library.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "base/exceptions.hpp"
#include "plug_in/logger.hpp"
#include <dlfcn.h>

namespace ccl::detail {
namespace {

/// Returns the symbols of a library or of the program; null if it cannot be opened.
void* open(std::string_view kind, const std::string& name) {
  if (name == "STATIC_PLUGIN") return ::dlopen(nullptr, RTLD_NOW | RTLD_LOCAL);
  if (void* const found = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
  const bool whole =
      name.find('/') != name.npos || (name.starts_with("lib") && name.ends_with(".so"));
  if (whole) return nullptr;
  return ::dlopen(fmt::format("libnccl-{}-{}.so", kind, name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

PlugInSymbol first_of(void* library, const std::string& name,
                      std::span<const std::string_view> symbols) {
  for (const std::string_view symbol : symbols) {
    if (const void* const object = ::dlsym(library, std::string{symbol}.c_str())) {
      return {object, symbol, name};
    }
  }
  return {};
}

}  // namespace

bool each_plug_in(std::string_view kind, const std::string& setting,
                  std::span<const std::string_view> symbols,
                  const std::function<bool(const PlugInSymbol&)>& take, std::string* missing,
                  std::span<const std::string_view> kin) {
  if (setting == "none") return false;
  const auto misses = [&](bool asked, const std::string& text) {
    asked ? log_warn(LogPart::init, "{}", text) : log_info(LogPart::init, "{}", text);
    if (missing == nullptr) return;
    *missing += missing->empty() ? text : "; " + text;
  };
  const std::string names = setting.empty() ? fmt::format("libnccl-{}.so", kind) : setting;
  for (std::size_t at = 0; at <= names.size();) {
    const auto end = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, end - at);
    at = end + 1;
    if (name.empty()) continue;
    void* const library = open(kind, name);
    if (library == nullptr) {
      const char* const why = ::dlerror();
      misses(!setting.empty(), fmt::format("{} plug-in {}: cannot be loaded ({})", kind, name,
                                           why == nullptr ? "no reason given" : why));
      continue;
    }
    if (const PlugInSymbol found = first_of(library, name, symbols); found.object != nullptr) {
      log_info(LogPart::init, "{} plug-in {}: {}", kind, name, found.symbol);
      if (take(found)) return true;
      continue;
    }
    const bool has_kin = first_of(library, name, kin).object != nullptr;
    ::dlclose(library);
    misses(!setting.empty() && !has_kin,
           fmt::format("{} plug-in {}: it has none of {}", kind, name, fmt::join(symbols, ", ")));
  }
  return false;
}

PlugInSymbol find_plug_in(std::string_view kind, const std::string& setting,
                          std::span<const std::string_view> symbols) {
  PlugInSymbol first;
  (void)each_plug_in(kind, setting, symbols, [&](const PlugInSymbol& found) {
    first = found;
    return true;
  });
  return first;
}

void log_of_plug_in(int level, unsigned long, const char* file, int line, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  const LogLevel as = level == plug_in_warn || level == plug_in_attn ? LogLevel::warn
                      : level == plug_in_trace                       ? LogLevel::trace
                                                                     : LogLevel::info;
  const auto write = [&] {
    log(as, LogPart::init, "plug-in: {} ({}:{})", text, file == nullptr ? "?" : file, line);
  };
  if (!completes(write)) lose_log_line();
}

}  // namespace ccl::detail
