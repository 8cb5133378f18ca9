#pragma once

#include <ccl/types/plan.hpp>
#include <ccl/types/result.hpp>

#include <optional>
#include <string_view>

namespace ccl::detail {

/// Returns true if `list` allows `name` for `op`.
///
/// The text holds lists separated by semicolons. A list holds names separated by commas, or ^ and
/// the names that it excludes. "op:" before a list limits it to that operation.
///
/// The last list for the operation applies, or else the last list for all operations. Without a
/// list all names are allowed. Case, '_' and spaces are ignored.
bool list_leaves(std::string_view list, std::string_view op, std::string_view name);

/// Registers a name for the lists of a setting (ALGO, PROTO or TRANSPORT). Returns true. `name`
/// must stay valid until the process ends.
bool know_name(const char* setting, const char* name);
/// Variables that register the names of policies. Code that uses them registers the names before
/// any setting is read.
template <class Algo>
inline const bool known_algorithm = know_name("ALGO", Algo::name);
template <class Proto>
inline const bool known_protocol = know_name("PROTO", Proto::name);
template <class T>
inline const bool known_transport = know_name("TRANSPORT", T::name);

/// Returns the setting that excludes the composition: ALGO, PROTO, or empty for none. On CPU ranks
/// NCCL_PROTO does not exclude Simple.
Result<std::string_view> excluding_setting(std::string_view op, std::string_view algo,
                                           std::string_view proto, bool on_gpus);
/// Fails if CCL_ALGO or CCL_PROTO excludes the composition. The error names the setting.
Result<void> may_compose(std::string_view op, std::string_view algo, std::string_view proto,
                         bool on_gpus = true);

/// Limits on the channels of a plan, from a `Config` or else from CCL_MIN_CTAS and CCL_MAX_CTAS.
struct ChannelBounds {
  std::optional<int> least, most;
};
Result<ChannelBounds> channel_bounds(std::optional<int> least, std::optional<int> most);

/// Applies CCL_BUFFSIZE, CCL_LL_BUFFSIZE or CCL_LL128_BUFFSIZE to a composition's default plan.
Result<Plan> with_buffer_setting(Plan plan, std::string_view proto);
/// Applies `Config::net_channels`, or CCL_NCHANNELS_PER_NET_PEER, to the plan of messages between
/// pairs over a network.
Result<Plan> with_net_channels(Plan plan, std::optional<int> configured);

}  // namespace ccl::detail
