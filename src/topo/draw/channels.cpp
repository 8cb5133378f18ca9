#include <ccl/topo/draw.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "topo/draw/canvas.hpp"

namespace ccl::topo {
using detail::Canvas;
using detail::inks;

std::string to_svg(const ChannelGraph& channels) {
  Canvas canvas;
  const double width = 760, height = 760, middle = width / 2, center = 410, radius = 250;
  const std::string title = fmt::format("{} · {} channels × {:g} GB/s", name(channels.pattern),
                                        channels.count(), channels.bw_intra);
  canvas.label(36, 40, title, 22, "#1b2433", "700", "start");
  std::vector<ChannelOrder> ways;
  std::vector<int> times;
  for (const ChannelOrder& order : channels.channels) {
    const auto known = std::find(ways.begin(), ways.end(), order);
    if (known == ways.end()) {
      ways.push_back(order);
      times.push_back(1);
    } else {
      ++times[known - ways.begin()];
    }
  }
  canvas.label(36, 62,
               fmt::format("{} different way{}; paths inside {}, to NICs {}", ways.size(),
                           ways.size() == 1 ? "" : "s", name(channels.type_intra),
                           name(channels.type_inter)),
               13, "#5b6880", "400", "start");
  if (ways.empty()) return canvas.text(width, 120);
  std::vector<int> ranks = ways[0].ranks;
  std::sort(ranks.begin(), ranks.end());
  std::map<int, std::pair<double, double>> at;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const double angle =
        2 * 3.14159265358979 * static_cast<double>(i) / static_cast<double>(ranks.size());
    at[ranks[i]] = {middle + radius * std::sin(angle), center - radius * std::cos(angle)};
  }
  for (std::size_t w = 0; w < ways.size(); ++w) {
    const char* ink = inks[w % inks.size()];
    const double bend = (static_cast<double>(w) - static_cast<double>(ways.size() - 1) / 2) * 14;
    const auto edge = [&](int a, int b) {
      const auto [x1, y1] = at[a];
      const auto [x2, y2] = at[b];
      const double length = std::max(1.0, std::hypot(x2 - x1, y2 - y1));
      const double ux = (x2 - x1) / length, uy = (y2 - y1) / length;
      const double cx = (x1 + x2) / 2 - uy * bend * 2, cy = (y1 + y2) / 2 + ux * bend * 2;
      canvas.path(fmt::format("M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}", x1 + ux * 38,
                              y1 + uy * 38, cx, cy, x2 - ux * 42, y2 - uy * 42),
                  ink, 2 + 0.25 * std::min(times[w], 12), 0.85, true);
    };
    const std::vector<int>& order = ways[w].ranks;
    const bool heads =
        channels.pattern == Pattern::nvls || channels.pattern == Pattern::collnet_direct;
    for (std::size_t i = 1; i < order.size(); ++i) edge(heads ? order[0] : order[i - 1], order[i]);
    if (channels.pattern == Pattern::ring && ways[w].net_in < 0 && order.size() > 1) {
      edge(order.back(), order.front());
    }
    const double y = 96 + 20 * static_cast<double>(w);
    if (y < height - 20) {
      canvas.line(width - 176, y - 4, width - 156, y - 4, ink, 4);
      canvas.label(width - 150, y,
                   ways[w].net_in < 0
                       ? fmt::format("{} channel{}", times[w], times[w] == 1 ? "" : "s")
                       : fmt::format("{} × NET {} → {}", times[w], ways[w].net_in, ways[w].net_out),
                   12, "#5b6880", "400", "start");
    }
  }
  for (const auto& [rank, place] : at) {
    canvas.box(place.first - 36, place.second - 24, 72, 48, "#1f7a4d", fmt::format("GPU {}", rank));
  }
  return canvas.text(width, height);
}

std::string trees_svg(int machines) {
  Canvas canvas;
  const double cell = std::clamp(1200.0 / std::max(machines, 1), 26.0, 72.0);
  const double width = std::max(560.0, cell * machines + 72);
  int depth = 1;
  while ((1 << depth) < machines) ++depth;
  const double block = 70 + 62.0 * (depth + 1);
  canvas.label(36, 40, fmt::format("Double binary tree over {} machines", machines), 22, "#1b2433",
               "700", "start");
  canvas.label(36, 62, "each carries half of the data; inner nodes of one are leaves of the other",
               13, "#5b6880", "400", "start");
  for (int twin = 0; twin < 2; ++twin) {
    const auto place = [&](int n) {
      return twin == 0 ? binary_tree(n, machines) : binary_twin(n, machines);
    };
    const auto level = [&](int n) {
      int up = 0;
      for (int p = place(n).parent; p >= 0; p = place(p).parent) ++up;
      return up;
    };
    const auto xy = [&](int n) {
      return std::pair(36 + cell * (n + 0.5), 110 + twin * block + 62.0 * level(n));
    };
    for (int n = 0; n < machines; ++n) {
      const auto [x, y] = xy(n);
      const int parent = place(n).parent;
      if (parent >= 0) {
        const auto [px, py] = xy(parent);
        canvas.line(x, y, px, py, inks[twin], 2.5);
      }
      const double half = std::min(cell * 0.42, 22.0);
      canvas.box(x - half, y - 14, 2 * half, 28, twin == 0 ? "#1f7a4d" : "#2456a6",
                 std::to_string(n));
    }
  }
  return canvas.text(width, 110 + 2 * block);
}

}  // namespace ccl::topo
