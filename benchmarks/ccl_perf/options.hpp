#pragma once

#include <ccl/types/plan.hpp>

#include <optional>
#include <string>
#include <vector>

#include "runner.hpp"

namespace ccl::perf {

/// Origin of the ranks.
enum class Launch {
  processes,   // forked by this program
  threads,     // threads of this process
  environment  // started by a launcher
};

enum class Device { cpu, cuda };

struct Options {
  std::string op = "all_reduce";
  Index begin = 8, end = Index{64} << 20;  // bytes
  double factor = 2;
  int iterations = 0;  // calls of one measurement; 0: by size
  int warmup = 2;
  int rounds = 5;  // measurements, whose median counts
  std::vector<DataType> types{DataType::float32};
  std::vector<RedOp> redops{RedOp::sum};
  int root = 0;
  int ranks = 0;
  int hosts = 0;  // hosts that the ranks simulate, block by block; 0: the real one
  Launch launch = Launch::environment;
  std::string algo = "auto", proto = "auto";
  std::string transport;  // a value of CCL_TRANSPORT; empty: from the environment
  bool check = true, in_place = false, windows = false, registered = false;
  bool explain = false;        // time the phases of each case
  bool deterministic = false;  // sums have one order: see `Deterministic`
  std::string tune;            // file of the table of measurements; empty: none
  // maximum blocks of a collective, one table for each value; 0: the default of the library
  std::vector<int> ctas{0};
  static constexpr int all_ctas = 4096;  // as many blocks as a GPU has multiprocessors
  std::string json;                      // file name; empty: none
  std::string compare;                   // "mpi", "nccl" or empty
  Device device = Device::cpu;
  int graph = 0;          // calls of a CUDA graph; 0: calls are queued one by one
  double timeout_s = 60;  // seconds of one GPU step, such as preparing or timing a size
  double limit_s = 1800;  // seconds after which no further size is started
  std::vector<std::string> nccl_modes{};  // empty: all
  std::string nccl_library;               // path of libnccl.so.2; empty: searched
  std::string nccl_algo, nccl_proto;      // NCCL_ALGO and NCCL_PROTO; empty: NCCL's choice
  // Members of the plan; 0: the composition's choice.
  Index slot_bytes = 0;
  int slots = 0, channels = 0, slice_steps = 0, chunk_steps = 0;
  std::string command;  // command line, for the JSON file

  bool plan_given() const {
    return slot_bytes != 0 || slots != 0 || channels != 0 || slice_steps != 0 || chunk_steps != 0;
  }
};

/// Parses the command line. An error, or a request for help, ends the program.
Options parse_options(int argc, char** argv);

}  // namespace ccl::perf
