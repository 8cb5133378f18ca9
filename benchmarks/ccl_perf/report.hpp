#pragma once

#include <vector>

#include "options.hpp"
#include "verify.hpp"

namespace ccl::perf {

/// What one library in one mode needed for a case, in every repetition.
struct Times {
  std::string name;               // "ccl", or NCCL's mode
  bool takes_part = false;        // to the end
  std::string failure{};          // why not
  std::vector<double> us{};       // by repetition: slowest rank, median of its samples
  std::vector<double> wall_us{};  // the same by the CPU's clock; empty with a graph
  Index wrong = 0;

  double median_us() const;
};

/// One line of the table.
struct Row {
  Shape shape;
  DataType type = DataType::float32;
  RedOp redop = RedOp::sum;
  std::string composition;  // "Ring/LL128"
  Plan plan;
  int ctas = 0;  // most blocks; 0: no limit
  int iterations = 0;
  double time_us = 0, min_us = 0;         // median and least of the rounds
  double rival_us = 0, rival_least_us = 0;  // 0: not measured
  Index wrong = -1;                         // elements, of all ranks; -1: not checked

  // Of GPUs, where the times above follow from these.
  Times own{};
  std::vector<Times> rivals{};

  /// Works out the times from `own` and `rivals`.
  void settle();
  /// The fastest of the rivals that were right; null: none.
  const Times* best_rival() const;
  double alg_gbs() const { return double(shape.bytes) / time_us / 1e3; }
  double bus_gbs() const { return alg_gbs() * shape.bus_factor; }
};

/// The machine, where GPUs are measured.
struct Machine {
  int gpus = 0;
  std::string model, driver, driver_cuda, runtime_cuda;
  std::string nccl, nccl_library;  // empty: not compared with
};

/// How a library's ranks came up: of the slowest rank, and of the GPU that lost most memory.
struct Start {
  std::string name;
  double create_s = 0, first_call_s = 0, leave_s = 0;
  Index create_bytes = 0, first_call_bytes = 0;  // the first call's without the communicator's
};

/// What the first rank prints.
class Report {
 public:
  /// `machine`: null where CPU ranks are measured. What is given must outlive it.
  Report(const Options& options, int ranks, bool prints, const Machine* machine = nullptr);

  void add(const Row& row);
  void add(const Start& start);
  /// A line among the others, also for the file: what went wrong, or what the reader must know.
  void finding(const std::string& text);
  /// A line on the terminal's error stream if nothing was printed for a while.
  void progress(int done, int all, const std::string& doing);
  /// The closing lines and the file. False: some element was wrong, or the file cannot be written.
  bool finish();
  const std::vector<Row>& rows() const { return rows_; }

 private:
  void clear_line();
  std::string rival_columns(const Row& row) const;

  const Options& options_;
  int ranks_;
  const Machine* machine_;
  bool prints_, terminal_, open_line_ = false;
  bool wrote_ = true;  // all that it printed
  double printed_at_;
  std::vector<Row> rows_;
  std::vector<Start> starts_;
  std::vector<std::string> findings_;
};

double median(std::vector<double> values);

/// The model of this machine's CPU.
std::string processor();

/// Seconds on a clock that only goes forward.
double now_s();

}  // namespace ccl::perf
