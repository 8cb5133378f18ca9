#pragma once

#include <ccl/types/plan.hpp>
#include <ccl/types/result.hpp>

#include <optional>
#include <string_view>

namespace ccl::detail {

/// Whether `list` leaves `name` to choose from when `op` is asked for: lists parted by semicolons,
/// each of names parted by commas, or ^ and the names that it leaves out; "op:" before a list makes
/// it that operation's alone. The last list of the operation counts, else the last for all; without
/// one everything is left. Case does not matter, nor '_' and spaces.
bool list_leaves(std::string_view list, std::string_view op, std::string_view name);

/// Lets the lists of a setting (ALGO, PROTO or TRANSPORT) hold this name, which outlives all. True.
bool know_name(const char* setting, const char* name);
/// By using these, code that composes policies makes their names known before any setting is read.
template <class Algo>
inline const bool known_algorithm = know_name("ALGO", Algo::name);
template <class Proto>
inline const bool known_protocol = know_name("PROTO", Proto::name);
template <class T>
inline const bool known_transport = know_name("TRANSPORT", T::name);

/// Nothing, or an error that says which of CCL_ALGO and CCL_PROTO leaves a composition out.
Result<void> may_compose(std::string_view op, std::string_view algo, std::string_view proto);

/// Limits on the channels of a plan, from a `Config`, else from CCL_MIN_CTAS and CCL_MAX_CTAS.
struct ChannelBounds {
  std::optional<int> least, most;
};
Result<ChannelBounds> channel_bounds(std::optional<int> least, std::optional<int> most);

/// The plan that a composition chose by itself, as the settings would have it: buffers of
/// CCL_BUFFSIZE, CCL_LL_BUFFSIZE or CCL_LL128_BUFFSIZE bytes.
Result<Plan> with_buffer_setting(Plan plan, std::string_view proto);
/// The plan of messages between pairs of ranks over a network, with CCL_NCHANNELS_PER_NET_PEER.
Result<Plan> with_net_channels(Plan plan);

}  // namespace ccl::detail
