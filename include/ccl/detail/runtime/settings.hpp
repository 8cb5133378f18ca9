#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <span>
#include <string>
#include <string_view>

namespace ccl::detail {

/// How a setting's value is written.
enum class SettingKind {
  flag,     // 0 or 1
  integer,  // a whole number between `least` and `most`
  bytes,    // a whole number, with K, M or G for powers of 1024
  seconds,  // a number, at least 0
  word,     // one of `words`, in any case
  text      // anything
};

/// One row of the table of settings. `name` is without its prefix: CCL_<name> in the environment.
struct Setting {
  std::string_view name;
  SettingKind kind;
  std::string_view initial;  // the value when nothing is set; empty: none
  bool nccl;                 // NCCL_<name> means the same and is read when CCL_<name> is not set
  std::string_view meaning;
  Index least = 0;
  Index most = 0;               // of integer and bytes; 0: no limit
  std::string_view words = {};  // of word: separated by spaces
};

/// Every setting that ccl knows, by name. docs/reference/settings.md lists the same.
std::span<const Setting> all_settings();

/// An error for the first CCL_ variable that is unknown, or whose value (or that of its NCCL_ name)
/// does not fit. Called by whatever starts a communicator.
Result<void> check_settings();

// Values now, from the environment. `name` is without prefix; a name that is not in the table, or
// is of another kind, is `Errc::internal`.
Result<bool> setting_flag(std::string_view name);
Result<Index> setting_integer(std::string_view name);
Result<Index> setting_bytes(std::string_view name);
Result<double> setting_seconds(std::string_view name);
Result<std::string> setting_text(std::string_view name);  // of word (in capitals) and text
/// Whether CCL_<name>, or the NCCL_ name that stands for it, is in the environment.
bool setting_given(std::string_view name);

}  // namespace ccl::detail
