#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/text.hpp"
#include "choose/only_selected.hpp"
#include "settings/report.hpp"

namespace ccl {
namespace {

using detail::plain;

/// Calls f(part) for each part of `text` between separators.
template <class F>
void each_part(std::string_view text, char separator, F f) {
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    f(text.substr(at, end - at));
    at = end + 1;
  }
}

/// True if a list names this operation.
bool is_named(std::string_view list, std::string_view op) {
  bool found = false;
  each_part(plain(list), ';', [&](std::string_view part) {
    const size_t colon = part.find(':');
    found = found || (colon != part.npos && part.substr(0, colon) == plain(op));
  });
  return found;
}

/// Operations with one algorithm are not checked, as in NCCL, unless a list names them.
bool has_choice(std::string_view op) {
  constexpr std::string_view ops[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                      "reduce"};
  return std::find(std::begin(ops), std::end(ops), op) != std::end(ops);
}

}  // namespace

namespace detail {
namespace {
thread_local std::string_view selected{};
thread_local bool own_only = false;
}  // namespace

OwnListsOnly::OwnListsOnly() : before_{own_only} {
  own_only = true;
}
OwnListsOnly::~OwnListsOnly() {
  own_only = before_;
}
bool OwnListsOnly::leaves_out(std::string_view setting) {
  return own_only && variable_of(setting).starts_with("NCCL_");
}

OnlySelected::OnlySelected(std::string_view list) : before_{selected} {
  selected = list;
}
OnlySelected::~OnlySelected() {
  selected = before_;
}
std::string_view OnlySelected::list() {
  return selected;
}
bool OnlySelected::leaves(std::string_view algo, std::string_view proto, bool on_gpus) {
  if (!on_gpus && proto == "Simple" && !selected.ends_with(' ')) {  // no whole name
    return leaves(algo, proto, true) || leaves(algo, "LL", true) || leaves(algo, "LL128", true);
  }
  std::string_view list = selected;
  const bool others = list.starts_with('^');
  if (others) list.remove_prefix(1);
  if (list.empty()) return true;
  const std::string name = fmt::format("{}_{} ", upper(algo), upper(proto));
  bool listed = false;
  each_part(list, ',', [&](std::string_view part) {
    listed = listed || (!part.empty() && name.starts_with(part));
  });
  return listed != others;
}
}  // namespace detail

bool detail::list_leaves(std::string_view list, std::string_view op, std::string_view name) {
  std::string counts;
  bool of_op = false;
  each_part(plain(list), ';', [&](std::string_view part) {
    const size_t colon = part.find(':');
    const bool named = colon != part.npos;
    if (named && part.substr(0, colon) != plain(op)) return;
    if (part.empty() || (of_op && !named)) return;
    of_op = named;
    counts = part.substr(named ? colon + 1 : 0);
  });
  const bool leaves_out = counts.starts_with('^');
  if (leaves_out) counts.erase(0, 1);
  if (counts.find_first_not_of(',') == counts.npos) return true;
  bool listed = false;
  each_part(counts, ',', [&](std::string_view part) { listed = listed || part == plain(name); });
  return listed != leaves_out;
}

Result<std::string_view> detail::excluding_setting(std::string_view op, std::string_view algo,
                                                   std::string_view proto, bool on_gpus) {
  for (const std::string_view setting : {"ALGO", "PROTO"}) {
    const bool by_algo = setting == "ALGO";
    CCL_TRY(const std::string list, detail::setting_text(setting));
    if (list.empty() || detail::OwnListsOnly::leaves_out(setting)) continue;
    if (!has_choice(op) && !is_named(list, op)) continue;
    if (detail::list_leaves(list, op, by_algo ? algo : proto)) continue;
    // NCCL chooses between protocols of GPUs; CPU ranks have this one alone.
    const bool is_cpu_s = !by_algo && !on_gpus && proto == "Simple";
    if (is_cpu_s && detail::variable_of(setting).starts_with("NCCL_")) continue;
    return setting;
  }
  return std::string_view{};
}

Result<void> detail::may_compose(std::string_view op, std::string_view algo, std::string_view proto,
                                 bool on_gpus) {
  CCL_TRY(const std::string_view setting, detail::excluding_setting(op, algo, proto, on_gpus));
  if (!setting.empty()) {
    CCL_TRY(const std::string list, detail::setting_text(setting));
    const std::string_view name = setting == "ALGO" ? algo : proto;
    return fail(
        Errc::bad_setting,
        fmt::format("{} cannot run by {}/{} ({} is {}, which leaves {} out); add "
                    "\"{}:{}\" to it or name another composition",
                    op, algo, proto, detail::variable_of(setting), list, name, plain(op), name));
  }
  if (OnlySelected::leaves(algo, proto, on_gpus)) return {};
  return fail(Errc::bad_setting,
              fmt::format("the call's algSelection is {}, which leaves {}/{} out",
                          OnlySelected::list(), algo, proto));
}

Result<detail::ChannelBounds> detail::channel_bounds(std::optional<int> least,
                                                     std::optional<int> most) {
  detail::ChannelBounds bounds{least, most};
  if (!least && detail::setting_given("MIN_CTAS")) {
    CCL_TRY(bounds.least, detail::setting_integer("MIN_CTAS"));
  }
  if (!most && detail::setting_given("MAX_CTAS")) {
    CCL_TRY(bounds.most, detail::setting_integer("MAX_CTAS"));
  }
  // NCCL cuts the lower bound, wherever the two are from.
  const auto is_nccl_s = [](const std::optional<int>& given, std::string_view setting) {
    return !given && detail::variable_of(setting).starts_with("NCCL_");
  };
  if (bounds.least && bounds.most && *bounds.most >= 1 &&
      (is_nccl_s(least, "MIN_CTAS") || is_nccl_s(most, "MAX_CTAS"))) {
    bounds.least = std::min(*bounds.least, *bounds.most);
  }
  const bool outside = bounds.least.value_or(1) < 1 || bounds.most.value_or(1) < 1;
  if (outside || (bounds.least && bounds.most && *bounds.least > *bounds.most)) {
    return fail(Errc::bad_setting,
                fmt::format("{} to {} channels cannot be (Config::min_channels or {}, "
                            "Config::max_channels or {}); give 1 or more, and the "
                            "smaller first",
                            bounds.least.value_or(1), bounds.most.value_or(4096),
                            detail::variable_of("MIN_CTAS"), detail::variable_of("MAX_CTAS")));
  }
  return bounds;
}

Result<Plan> detail::with_buffer_setting(Plan plan, std::string_view proto) {
  const std::string_view setting = proto == "Simple"  ? "BUFFSIZE"
                                   : proto == "LL"    ? "LL_BUFFSIZE"
                                   : proto == "LL128" ? "LL128_BUFFSIZE"
                                                      : "";
  if (setting.empty() || !detail::setting_given(setting)) return plan;
  CCL_TRY(const Index buffer, detail::setting_bytes(setting));
  plan.slot_bytes = std::max<Index>(buffer / plan.slot_count / 128 * 128, 128);
  return plan;
}

Result<Plan> detail::with_net_channels(Plan plan, std::optional<int> configured) {
  if (configured) {
    plan.channels = *configured;
    return plan;
  }
  if (!detail::setting_given("NCHANNELS_PER_NET_PEER")) return plan;
  CCL_TRY(const Index channels, detail::setting_integer("NCHANNELS_PER_NET_PEER"));
  plan.channels = int(channels);
  return plan;
}

}  // namespace ccl
