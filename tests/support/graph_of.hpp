#pragma once

#include <ccl/topo/xml.hpp>

#include <string_view>
#include <utility>

#include "catch.hpp"

namespace ccl::test {

/// Returns the machine of a topology file with this text, which must be valid.
inline topo::LoadedGraph loaded_from(std::string_view text) {
  const auto file = topo::parse_xml(text, "test.xml");
  if (!file) FAIL(file.error().what);
  auto loaded = topo::to_graph(*file);
  if (!loaded) FAIL(loaded.error().what);
  return *std::move(loaded);
}
inline topo::Graph graph_of(std::string_view text) {
  return loaded_from(text).graph;
}

}  // namespace ccl::test
