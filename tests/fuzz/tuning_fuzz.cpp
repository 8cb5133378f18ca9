// Tables of measurements.
#include <ccl/detail/choose/tuning.hpp>

#include "fuzz/fuzz.hpp"

namespace ccl::fuzz {

using namespace detail;

void prepare() {}
void read(Input input) {
  auto table = TuningTable::parse(text_of(input), "a fuzzed table");
  if (!table) return;
  const auto again = TuningTable::parse(table->json(), "the same");
  demand(again.has_value(), "a table that is written cannot be read");
  demand(again->rows.size() == table->rows.size(), "rows are lost");
  for (const TuningRow& row : table->rows) demand(!table->of(row.where).empty(), "a row is lost");
  table->merge(*again);
}

std::vector<std::string> seeds() {
  TuningTable table;
  table.machine = "a machine";
  TuningRow row;
  row.where = {"all_reduce", 8, 2, "nvlink", 90, 4};
  row.bytes = 1024;
  row.us = {{"Ring/LL128", 12.5}, {"Tree/LL", 9.25}};
  table.rows = {row, row};
  return {table.json(), R"({"format": "ccl tuning table 1", "rows": []})"};
}

}  // namespace ccl::fuzz
