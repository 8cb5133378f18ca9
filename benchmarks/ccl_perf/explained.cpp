#include "explained.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "median.hpp"

namespace ccl::perf {

static_assert(std::is_trivially_copyable_v<RankPhases>);

Explained explained_of(std::span<const RankPhases> ranks) {
  const bool any = std::ranges::any_of(ranks, &RankPhases::receives);
  const auto over_ranks = [&](auto value) {
    std::vector<double> values;
    for (const RankPhases& of : ranks) {
      if (of.receives || !any) values.push_back(value(of));
    }
    return median(values);
  };
  const auto part = [&](int p) {
    return over_ranks([p](const RankPhases& of) { return of.us[std::size_t(p)]; });
  };
  Explained all{part(0), part(1), part(2), part(3), part(4)};
  all.link_first_us = over_ranks([](const RankPhases& of) { return of.link_first_us; });
  all.link_gbs = over_ranks([](const RankPhases& of) { return of.link_gbs; });
  const double steady = over_ranks([](const RankPhases& of) { return of.steady_bytes; });
  const double data = over_ranks([](const RankPhases& of) { return of.data_bytes; });
  const double data_us = all.first_hop_us + all.steady_us;
  if (all.steady_us > 0) all.steady_gbs = steady / all.steady_us / 1e3;
  if (data_us > 0) all.data_gbs = data / data_us / 1e3;
  all.on_gpus = true;
  return all;
}

std::string Explained::text() const {
  const double all = std::max(total_us(), 1e-9);
  const auto part = [&](const char* name, double us) {
    return fmt::format("{} {:.2f} us ({:.0f} %", name, us, 100 * us / all);
  };
  std::string text = plain_launches ? "with plain launches: " : "";
  text += part("launch", launch_us) + ")";
  if (on_gpus) {
    text += ", " + part("wait for the launch before", before_us) + ")";
  } else if (before_us > 0) {
    text += ", " + part("opening", before_us) + ")";
  }
  text += ", " + part("first hop", first_hop_us);
  if (link_first_us > 0) {
    text += fmt::format("; {:.1f} times a message's {:.2f} us", first_hop_us / link_first_us,
                        link_first_us);
  }
  text += "), " + part("steady state", steady_us);
  if (link_gbs > 0 && steady_gbs > 0) {
    text += fmt::format("; {:.2f} of the link's {:.2f} GB/s", steady_gbs, link_gbs);
  } else if (link_gbs > 0 && data_gbs > 0) {
    text +=
        fmt::format("; with the first hop {:.2f} of the link's {:.2f} GB/s", data_gbs, link_gbs);
  }
  return text + "), " + part("tail", tail_us) + ")";
}

}  // namespace ccl::perf
