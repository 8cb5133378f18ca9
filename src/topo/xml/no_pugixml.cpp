// Replaces parse.cpp if pugixml was not found.
#include <ccl/topo/xml.hpp>

#include <fmt/format.h>

namespace ccl::topo {

Result<XmlFile> parse_xml(std::string_view, std::string name) {
  return fail(Errc::not_supported,
              fmt::format("{} cannot be read (ccl was built without pugixml); build it with "
                          "pugixml, or do without the file",
                          name));
}

}  // namespace ccl::topo
