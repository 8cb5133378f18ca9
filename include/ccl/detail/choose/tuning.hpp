#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Case of a measurement. `ccl_perf --tune` writes it, a communicator reads it.
struct TuningCase {
  std::string op;  // "all_reduce"
  int ranks = 0;
  int hosts = 1;               // hosts of these ranks
  std::string path;            // "nvlink", "pcie", "gpu-host", "gpu-net", "shm", "net"
  int compute_capability = 0;  // compute capability of the GPUs; 0 on CPUs
  int max_ctas = 0;            // CTA limit of the measurement; 0: the default
  friend bool operator==(const TuningCase&, const TuningCase&) = default;
};

/// Times of one size in one case.
struct TuningRow {
  TuningCase where;
  Index bytes = 0;
  std::vector<std::pair<std::string, double>> us;  // us by composition, such as "Ring/LL128"
};

/// Table of measured times. A choice uses them instead of the model in their cases.
class TuningTable {
 public:
  std::string machine;  // name of the machine, for messages
  std::vector<TuningRow> rows;

  /// Fails with `Errc::bad_setting` if the text is no table; the error names `name` as its source.
  static Result<TuningTable> parse(std::string_view json, const std::string& name);
  static Result<TuningTable> read(const std::string& path);
  std::string json() const;
  /// Replaces the file atomically: a concurrent reader gets the old file or the new one.
  Result<void> write(const std::string& path) const;
  /// Adds the rows of `other` and replaces those of the same case and size.
  void merge(const TuningTable& other);
  /// Rows of one case, by size; pointers into `rows`.
  std::vector<const TuningRow*> of(const TuningCase& where) const;
};

}  // namespace ccl::detail
