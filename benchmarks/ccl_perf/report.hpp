#pragma once

#include <optional>
#include <vector>

#include "explained.hpp"
#include "options.hpp"
#include "verify.hpp"

namespace ccl::perf {

/// Times of one library in one mode for a case, in every repetition.
struct Times {
  std::string name;               // "ccl", or NCCL's mode
  bool takes_part = false;        // true: it ran to the end
  std::string failure{};          // reason why it does not take part
  std::vector<double> us{};       // by repetition: slowest rank, median of its samples
  std::vector<double> wall_us{};  // likewise by the CPU's clock; empty with a graph
  Index wrong = 0;

  double median_us() const;
};

/// Line of the table.
struct Row {
  Shape shape;
  DataType type = DataType::float32;
  RedOp redop = RedOp::sum;
  std::string composition;  // "Ring/LL128"
  Plan plan;
  int ctas = 0;  // maximum blocks; 0: the default
  int iterations = 0;
  double time_us = 0, min_us = 0;           // median and minimum of the rounds
  double rival_us = 0, rival_least_us = 0;  // 0: not measured
  Index wrong = -1;                         // elements on all ranks; -1: not checked

  std::optional<Explained> explained{};

  // Measurements on GPUs, from which the times above are computed.
  Times own{};
  std::vector<Times> rivals{};

  /// Computes the times from `own` and `rivals`.
  void finish_choice();
  /// Returns the fastest rival with correct results; null: none.
  const Times* best_rival() const;
  double alg_gbs() const { return double(shape.bytes) / time_us / 1e3; }
  double bus_gbs() const { return alg_gbs() * shape.bus_factor; }
};

/// Machine whose GPUs are measured.
struct Machine {
  int gpus = 0;
  std::string model, driver, driver_cuda, runtime_cuda;
  std::string nccl, nccl_library;  // empty: not compared with NCCL
};

/// Start-up of a library's ranks: times of the slowest rank, and bytes of the GPU that lost most
/// memory.
struct Start {
  std::string name;
  double create_s = 0, first_call_s = 0, leave_s = 0;
  Index create_bytes = 0, first_call_bytes = 0;  // the first call's without the communicator's
};

/// Output of the first rank.
class Report {
 public:
  /// Creates a report. `machine` is null if CPU ranks are measured. All arguments must outlive it.
  Report(const Options& options, int ranks, bool prints, const Machine* machine = nullptr);

  void add(const Row& row);
  void add(const Start& start);
  /// Prints a line among the others, and adds it to the file: an error, or a note to the reader.
  void finding(const std::string& text);
  /// Prints a line on stderr of a terminal if nothing was printed for a while.
  void progress(int done, int all, const std::string& doing);
  /// Prints the closing lines and writes the file. Returns false if an element was wrong or the
  /// file cannot be written.
  bool finish();
  const std::vector<Row>& rows() const { return rows_; }

 private:
  void clear_line();
  std::string rival_columns(const Row& row) const;

  const Options& options_;
  int ranks_;
  const Machine* machine_;
  bool prints_, terminal_, open_line_ = false;
  bool wrote_ = true;  // true: all output was written
  double printed_at_;
  std::vector<Row> rows_;
  std::vector<Start> starts_;
  std::vector<std::string> findings_;
};

/// Returns the model of this machine's CPU.
std::string processor();

/// Returns seconds of a monotonic clock.
double now_s();

}  // namespace ccl::perf
