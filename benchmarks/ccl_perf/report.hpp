#pragma once

#include <vector>

#include "options.hpp"
#include "verify.hpp"

namespace ccl::perf {

/// One line of the table.
struct Row {
  Shape shape;
  DataType type = DataType::float32;
  RedOp redop = RedOp::sum;
  std::string composition;  // "Ring/LL128"
  Plan plan;
  int iterations = 0;
  double time_us = 0, least_us = 0;         // median and least of the rounds
  double rival_us = 0, rival_least_us = 0;  // 0: not measured
  Index wrong = -1;                         // elements, of all ranks; -1: not checked

  double alg_gbs() const { return double(shape.bytes) / time_us / 1e3; }
  double bus_gbs() const { return alg_gbs() * shape.bus_factor; }
};

/// What the first rank prints.
class Report {
 public:
  /// `transports`: of the connections, as far as they are known.
  Report(const Options& options, int ranks, bool prints);

  void add(const Row& row);
  /// A line on the terminal's error stream if nothing was printed for a while.
  void progress(int done, int all, const std::string& doing);
  /// The closing lines and the file. False: some element was wrong, or the file cannot be written.
  bool finish();

 private:
  void write_json() const;

  const Options& options_;
  int ranks_;
  bool prints_, terminal_, open_line_ = false;
  double printed_at_;
  std::vector<Row> rows_;
};

/// Seconds on a clock that only goes forward.
double now_s();

}  // namespace ccl::perf
