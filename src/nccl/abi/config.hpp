#pragma once

#include <ccl/comm/config.hpp>
#include <ccl/detail/runtime/plans.hpp>
#include <ccl/types/result.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "nccl/abi/abi.hpp"

namespace ccl::detail::nccl {

/// Configuration of a communicator, with what only this library uses.
struct MemberConfig : Config {
  int signal_contexts = 1, signals = 1;  // of ncclPutSignal: how many there are
  bool early_signals = false;            // signals come before any window
  bool zero_blocks = false;              // calls by copy engines where they can: see `ZeroCopies`
  // The program's configuration, without texts, for the NCCL of CCL_NCCL_FALLBACK.
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  std::string net_name;
};

/// True if `size` and `magic`, the first members of NCCL's structures, are those of an initializer.
template <class Given>
bool is_begun(const Given& given, std::size_t least, unsigned magic = NCCL_API_MAGIC) {
  return given.size >= least && given.magic == magic;
}

/// Copies the members that the caller's version has. The sizes of all versions are multiples of the
/// alignment; a member in which another size ends is left out, because it may be half a pointer.
template <class Config>
void copy_known(Config& all, const Config& given) {
  constexpr std::size_t unit = alignof(Config);
  std::memcpy(&all, &given, std::min(given.size, sizeof all) / unit * unit);
}

/// Returns the most blocks of a launch by NCCL's policy; nothing if it does not limit them.
inline std::optional<int> max_blocks_by(int policy) {
  constexpr int efficient_blocks = default_max_blocks / 2;
  if ((policy & NCCL_CTA_POLICY_EFFICIENCY) != 0) return efficient_blocks;
  return {};
}

/// Returns the bounds on blocks that a program gives. As NCCL, they are cut, not refused: the lower
/// one to NCCL's most channels, the upper one to those of a plan.
constexpr int cut_least(int blocks) {
  constexpr int max_channels_of_nccl = 64;
  return std::min(blocks, max_channels_of_nccl);
}
constexpr int cut_most(int blocks) {
  constexpr int max_channels = 4096;
  return std::min(blocks, max_channels);
}

/// Logs once for a process that a member of a configuration is set and has no effect.
void log_without_effect(const char* of, const char* member, const char* why);

/// Converts a configuration. One of an older header is shorter, one of a newer header longer; what
/// this library does not know of it is not read. Members that ccl has no use for are named once in
/// the log. Settings of the environment count before members, as in NCCL. Returns `otherwise`, or
/// the default, for null. Fails with `Errc::invalid_argument` for a value that NCCL refuses, or
/// with `Errc::bad_setting` if a setting of the environment cannot be.
Result<MemberConfig> read_config(const ncclConfig_t* given,
                                 const MemberConfig* otherwise = nullptr);

}  // namespace ccl::detail::nccl
