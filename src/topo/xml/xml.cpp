#include <ccl/topo/xml.hpp>

#include <algorithm>
#include <cctype>

#include "base/io/file.hpp"
#include "base/text.hpp"

namespace ccl::topo {

const std::string* Element::find(std::string_view attribute) const {
  for (const auto& [key, value] : attributes) {
    if (key == attribute) return &value;
  }
  return nullptr;
}

void Element::set(std::string_view attribute, std::string value) {
  for (auto& [key, old] : attributes) {
    if (key == attribute) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(attribute, std::move(value));
}

namespace {

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += (static_cast<unsigned char>(c) < 0x20) ? ' ' : c;
    }
  }
  return out;
}

void print(const Element& element, int indent, std::string& out) {
  out += std::string(2 * static_cast<std::size_t>(indent), ' ') + "<" + element.name;
  for (const auto& [key, value] : element.attributes)
    out += " " + key + "=\"" + escape(value) + "\"";
  if (element.children.empty()) {
    out += "/>\n";
    return;
  }
  out += ">\n";
  for (const Element& child : element.children) print(child, indent + 1, out);
  out += std::string(2 * static_cast<std::size_t>(indent), ' ') + "</" + element.name + ">\n";
}

}  // namespace

Result<XmlFile> read_xml(const std::string& path) {
  CCL_TRY(const std::string text, ccl::detail::whole_file(path));
  return parse_xml(text, path);
}

Result<void> write_file(const std::string& path, std::string_view text) {
  return ccl::detail::write_whole_file(path, text);
}

std::string print_xml(const Element& root, int indent) {
  std::string out;
  print(root, indent, out);
  return out;
}

bool parse_bus_id(std::string_view text, std::int64_t& id) {
  std::uint64_t value = 0;
  int digits = 0;
  for (const char c : text) {
    if (c == ':' || c == '.') continue;
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return false;
    const int lower = ccl::detail::lower(c);
    value = value * 16 + static_cast<std::uint64_t>(lower <= '9' ? lower - '0' : lower - 'a' + 10);
    if (++digits > 16) return false;
  }
  if (digits == 0) return false;
  id = static_cast<std::int64_t>(value);
  return true;
}

}  // namespace ccl::topo
