#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <span>
#include <string>
#include <string_view>

namespace ccl::detail {

/// Form of a setting's value.
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
  std::string_view initial;  // value of an unset setting; empty: none
  bool nccl;                 // NCCL_<name> means the same and is read when CCL_<name> is not set
  std::string_view meaning;
  Index least = 0;
  Index most = 0;               // maximum of integer and bytes; 0: no limit
  std::string_view words = {};  // values of word, separated by spaces
};

/// All settings of ccl, sorted by name. docs/reference/settings.md has the same list.
std::span<const Setting> all_settings();

/// Fails if a CCL_ variable is unknown, or if its value or the value of its NCCL_ name is invalid.
/// The start of a communicator calls it.
Result<void> check_settings();

/// Logs what this process's variables are worth, each variable once:
/// - at INFO, each that sets a setting, and each NCCL_ name that ccl does not read;
/// - as a warning, each NCCL_ value that does not fit, so that the initial value counts;
/// - as a warning on rank 0, each CCL_ name that is no setting.
void report_settings(int rank);

// Current values from the environment. `name` has no prefix. A name that is not in the table, or
// has another kind, fails with `Errc::internal`.
Result<bool> setting_flag(std::string_view name);
Result<Index> setting_integer(std::string_view name);
Result<Index> setting_bytes(std::string_view name);
Result<double> setting_seconds(std::string_view name);
Result<std::string> setting_text(std::string_view name);  // also for word, in capitals
/// Returns true if CCL_<name>, or the NCCL_ name that stands for it, is in the environment.
bool setting_given(std::string_view name);

}  // namespace ccl::detail
