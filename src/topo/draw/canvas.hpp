#pragma once

#include <ccl/topo/graph.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace ccl::topo::detail {

inline const char* color(LinkType type) {
  switch (type) {
    case LinkType::nvl:
      return "#22a559";
    case LinkType::c2c:
      return "#7c3aed";
    case LinkType::sys:
      return "#dc5b4b";
    case LinkType::net:
      return "#c2740a";
    default:
      return "#8593a8";
  }
}

inline std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

/// SVG text under construction. Coordinates are pixels.
class Canvas {
 public:
  void box(double x, double y, double w, double h, const char* fill, const std::string& text,
           const std::string& note = "", const char* ink = "#ffffff") {
    body_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"8\" "
        "fill=\"{}\"/>\n",
        x, y, w, h, fill);
    const double middle = y + h / 2;
    label(x + w / 2, note.empty() ? middle + 5 : middle - 2, text, 14, ink, "600");
    if (!note.empty()) label(x + w / 2, middle + 14, note, 11, ink, "400");
  }
  void label(double x, double y, const std::string& text, double size, const char* ink,
             const char* weight = "400", const char* anchor = "middle") {
    body_ += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:g}\" fill=\"{}\" font-weight=\"{}\" "
        "text-anchor=\"{}\">{}</text>\n",
        x, y, size, ink, weight, anchor, escaped(text));
  }
  void path(const std::string& way, const char* ink, double width, double opacity = 1,
            bool arrow = false) {
    lines_ += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\" "
        "stroke-opacity=\"{:g}\" "
        "stroke-linecap=\"round\"{}/>\n",
        way, ink, width, opacity, arrow ? " marker-end=\"url(#tip)\"" : "");
  }
  void line(double x1, double y1, double x2, double y2, const char* ink, double width) {
    path(fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", x1, y1, x2, y2), ink, width);
  }
  std::string text(double width, double height) const {
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
               "width=\"{0:.0f}\" height=\"{1:.0f}\" font-family=\"Inter, Helvetica, Arial, "
               "sans-serif\">\n<defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"8\" "
               "refY=\"5\" "
               "markerWidth=\"5\" markerHeight=\"5\" orient=\"auto-start-reverse\"><path d=\"M0 "
               "0L10 "
               "5L0 10z\" fill=\"context-stroke\"/></marker></defs>\n<rect width=\"100%\" "
               "height=\"100%\" fill=\"#ffffff\"/>\n",
               width, height) +
           lines_ + body_ + "</svg>\n";
  }

 private:
  std::string lines_, body_;  // lines are below boxes
};

inline double stroke(float bw) {
  return std::clamp(1.5 + std::log2(1 + bw / 12.0) * 1.1, 1.5, 8.0);
}

inline constexpr std::array inks{"#22a559", "#2563c9", "#c2740a", "#9333b8",
                                 "#d1435b", "#0e8f8f", "#7a8b13", "#5b6880"};

}  // namespace ccl::topo::detail
