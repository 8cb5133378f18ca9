#pragma once

#include <span>
#include <string>
#include <string_view>

#include "nccl/plug_in/abi.hpp"

namespace ccl::detail::nccl {

/// Object of a plug-in's library.
struct PlugInSymbol {
  const void* object = nullptr;  // null: there is none
  std::string_view symbol;       // name under which it was found
};

/// Returns the first of `symbols` that a library has, as NCCL finds its plug-ins of this kind
/// ("profiler"). The library stays loaded.
/// - `setting` is a list of names. Each is tried as dlopen takes it, then as
/// `libnccl-KIND-NAME.so`.
///   "none": there is none. "STATIC_PLUGIN": the program's own symbols.
/// - Without it `libnccl-KIND.so` is tried.
///
/// A library that was asked for and is missing is a warning in the log.
PlugInSymbol find_plug_in(std::string_view kind, const std::string& setting,
                          std::span<const std::string_view> symbols);

/// Function that plug-ins log by.
void log_of_plug_in(int level, unsigned long parts, const char* file, int line, const char* format,
                    ...) __attribute__((format(printf, 5, 6)));

}  // namespace ccl::detail::nccl
