#pragma once

#include <ccl/types/plan.hpp>

#include <optional>
#include <string>
#include <vector>

#include "runner.hpp"

namespace ccl::perf {

/// How the ranks come to be.
enum class Launch {
  processes,   // this program forks them
  threads,     // of this process
  environment  // a launcher started them
};

enum class Device { cpu, cuda };

struct Options {
  std::string op = "all_reduce";
  Index begin = 8, end = Index{64} << 20;  // bytes
  double factor = 2;
  int iterations = 0;  // of one measurement; 0: by size
  int warmup = 2;
  int rounds = 5;  // measurements, of which the median counts
  std::vector<DataType> types{DataType::float32};
  std::vector<RedOp> redops{RedOp::sum};
  int root = 0;
  int ranks = 0;
  int hosts = 0;  // that the ranks take themselves to be on, block by block; 0: as it is
  Launch launch = Launch::environment;
  std::string algo = "auto", proto = "auto";
  std::string transport;  // a value of CCL_TRANSPORT; empty: as the environment has it
  bool check = true, in_place = false, windows = false;
  std::string tune;          // file of the table of measurements; empty: none is made
  std::vector<int> ctas{0};  // most blocks of a collective, one table after the other; 0: no limit
  std::string json;          // file; empty: none
  std::string compare;       // "mpi", "nccl", or nothing
  Device device = Device::cpu;
  int graph = 0;          // calls of a CUDA graph; 0: calls are queued one by one
  double timeout_s = 60;  // of one step of the GPUs, as preparing a size or timing it once
  double limit_s = 1800;  // no further size is begun after that
  std::vector<std::string> nccl_modes{};  // empty: all
  std::string nccl_library;               // path of libnccl.so.2; empty: found
  std::string nccl_algo, nccl_proto;      // NCCL_ALGO, NCCL_PROTO; empty: NCCL's choice
  // Of the plan; 0: the composition's choice.
  Index slot_bytes = 0;
  int slots = 0, channels = 0, slice_steps = 0, chunk_steps = 0;
  std::string command;  // as it was given, for the JSON file

  bool plan_given() const {
    return slot_bytes != 0 || slots != 0 || channels != 0 || slice_steps != 0 || chunk_steps != 0;
  }
};

/// From the command line. What is wrong with it, or a wish for help, ends the program.
Options parse_options(int argc, char** argv);

}  // namespace ccl::perf
