#include <ccl/topo/xml.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "base/text.hpp"
#include <pugixml.hpp>

namespace ccl::topo {

using detail::is_utf8;

namespace {

class Lines {
 public:
  explicit Lines(std::string_view text) {
    starts_.push_back(0);
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') starts_.push_back(i + 1);
    }
  }
  int at(std::ptrdiff_t offset) const {
    const auto after =
        std::upper_bound(starts_.begin(), starts_.end(),
                         static_cast<std::size_t>(std::max<std::ptrdiff_t>(offset, 0)));
    return static_cast<int>(after - starts_.begin());
  }

 private:
  std::vector<std::size_t> starts_;
};

Result<Element> copy(const pugi::xml_node& node, const Lines& lines, const std::string& file,
                     int depth) {
  Element element;
  element.name = node.name();
  element.line = lines.at(node.offset_debug());
  if (depth > max_xml_depth) {
    return fail(
        Errc::invalid_argument,
        fmt::format("{}:{}: <{}> is nested {} deep (no machine has that many buses in a row); "
                    "check the file",
                    file, element.line, element.name, depth));
  }
  const auto bad = [&](const std::string& what) {
    return fail(Errc::invalid_argument, fmt::format("{}:{}: {} is no UTF-8; save the file in UTF-8",
                                                    file, element.line, what));
  };
  if (!is_utf8(element.name)) return bad("the name of an element");
  for (const pugi::xml_attribute& attribute : node.attributes()) {
    if (!is_utf8(attribute.name())) return bad("the name of an attribute");
    if (!is_utf8(attribute.value())) return bad(fmt::format("the value of {}", attribute.name()));
    element.attributes.emplace_back(attribute.name(), attribute.value());
  }
  for (const pugi::xml_node& child : node.children()) {
    if (child.type() != pugi::node_element) continue;
    CCL_TRY(Element sub, copy(child, lines, file, depth + 1));
    element.children.push_back(std::move(sub));
  }
  return element;
}

}  // namespace

Result<XmlFile> parse_xml(std::string_view text, std::string name) {
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(text.data(), text.size());
  const Lines lines(text);
  if (!parsed) {
    return fail(Errc::invalid_argument,
                fmt::format("{}:{}: not well-formed XML ({}); repair the file", name,
                            lines.at(parsed.offset), parsed.description()));
  }
  const pugi::xml_node root = document.document_element();
  if (!root) {
    return fail(
        Errc::invalid_argument,
        fmt::format("{}:1: no element (the file is empty); give a <system> or <graphs>", name));
  }
  for (pugi::xml_node more = root.next_sibling(); more; more = more.next_sibling()) {
    if (more.type() != pugi::node_element) continue;
    return fail(Errc::invalid_argument,
                fmt::format("{}:{}: not well-formed XML (a second root element begins); give each "
                            "its own file",
                            name, lines.at(more.offset_debug())));
  }
  XmlFile file;
  CCL_TRY(file.root, copy(root, lines, name, 0));
  file.name = std::move(name);
  return file;
}

}  // namespace ccl::topo
