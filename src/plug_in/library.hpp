#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace ccl::detail {

/// Object of a plug-in's library.
struct PlugInSymbol {
  const void* object = nullptr;  // null: there is none
  std::string_view symbol;       // name under which it was found
  std::string library;           // as it was named
};

/// Offers plug-ins of a kind ("profiler") as NCCL finds them, one after the other, until `take`
/// returns true. Each is the first of `symbols` that a library has. Its library stays loaded,
/// because it may have begun threads. Returns false if none is taken.
/// - `setting` is a list of names. Each is tried as dlopen takes it, then as
///   `libnccl-KIND-NAME.so`. "none": there is none. "STATIC_PLUGIN": the program's own symbols.
/// - Without it `libnccl-KIND.so` is tried.
///
/// A library that was asked for and is missing is a warning in the log. So is one without the
/// symbols, unless it has one of `kin`, which are those of another kind under the same setting.
/// `missing` gets the texts of both, unless it is null.
bool each_plug_in(std::string_view kind, const std::string& setting,
                  std::span<const std::string_view> symbols,
                  const std::function<bool(const PlugInSymbol&)>& take,
                  std::string* missing = nullptr, std::span<const std::string_view> kin = {});

/// Returns the first plug-in that `each_plug_in` finds.
PlugInSymbol find_plug_in(std::string_view kind, const std::string& setting,
                          std::span<const std::string_view> symbols);

}  // namespace ccl::detail
