#include "tune.hpp"

#include <algorithm>

#include <unistd.h>

namespace ccl::perf {

Result<void> write_tuning(const Options& options, const detail::TuningCase& where,
                          const std::string& machine, const std::vector<Row>& rows) {
  detail::TuningTable table;
  if (::access(options.tune.c_str(), F_OK) == 0) {
    CCL_TRY(table, detail::TuningTable::read(options.tune));
  }
  detail::TuningTable measured;
  measured.machine = machine;
  for (const Row& row : rows) {
    if (row.time_us <= 0 || row.wrong > 0) continue;
    const auto same = [&](const detail::TuningRow& one) { return one.bytes == row.shape.bytes; };
    auto at = std::find_if(measured.rows.begin(), measured.rows.end(), same);
    if (at == measured.rows.end()) {
      at = measured.rows.insert(at, {where, row.shape.bytes, {}});
    }
    at->us.emplace_back(row.composition, row.time_us);
  }
  table.merge(measured);
  return table.write(options.tune);
}

}  // namespace ccl::perf
