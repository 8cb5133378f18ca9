#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ccl::detail {

/// What was measured where: `ccl_perf --tune` writes it, a communicator reads it.
struct TuningCase {
  std::string op;  // "all_reduce"
  int ranks = 0;
  int hosts = 1;               // that they are on
  std::string path;            // "nvlink", "pcie", "gpu-host", "gpu-net", "shm", "net"
  int compute_capability = 0;  // of the GPUs; 0 on CPUs
  int max_ctas = 0;            // that it was measured with; 0: no limit
  friend bool operator==(const TuningCase&, const TuningCase&) = default;
};

/// Times of one size in one case.
struct TuningRow {
  TuningCase where;
  Index bytes = 0;
  std::vector<std::pair<std::string, double>> us;  // by composition: "Ring/LL128"
};

/// Measured times, which a choice goes by instead of the model where it is in one of their cases.
class TuningTable {
 public:
  std::string machine;  // for people
  std::vector<TuningRow> rows;

  /// `Errc::bad_setting` where it is none; `name` says in the error what was read.
  static Result<TuningTable> parse(std::string_view json, const std::string& name);
  static Result<TuningTable> read(const std::string& path);
  std::string json() const;
  /// In place at once: who reads meanwhile gets the old file or the new one.
  Result<void> write(const std::string& path) const;
  /// Takes the rows of `other`, in place of those of the same case and size.
  void merge(const TuningTable& other);
  /// Those of one case, by size; they lie in `rows`.
  std::vector<const TuningRow*> of(const TuningCase& where) const;
};

}  // namespace ccl::detail
