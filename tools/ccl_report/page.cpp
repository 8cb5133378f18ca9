#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

#include "page_parts.hpp"
#include "timeline.hpp"

namespace report {
namespace {

/// JSON in a script: no text of a record ends the script.
std::string in_script(std::string json) {
  for (std::size_t at = 0; (at = json.find('<', at)) != json.npos;) json.replace(at, 1, "\\u003c");
  return json;
}

/// Replaces the last of the marks in `page`.
void put(std::string& page, std::string_view mark, std::string_view by) {
  const std::size_t at = page.rfind(mark);
  if (at != page.npos) page.replace(at, mark.size(), by);
}

}  // namespace

std::string page_of(const std::string& trace, const std::string& text) {
  std::string page{page_html};
  put(page, "@STYLE@", page_css);
  put(page, "@MODEL@", model_js);
  put(page, "@VIEWER@", viewer_js);
  // The trace stands behind the report, in which a name may look like a mark.
  const nlohmann::json report = text;
  put(page, "@REPORT@",
      in_script(report.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
  put(page, "@TRACE@", in_script(trace));
  return page;
}

}  // namespace report
