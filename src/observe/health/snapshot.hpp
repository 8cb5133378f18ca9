#pragma once

#include <ccl/comm/report.hpp>

#include <functional>
#include <string>
#include <vector>

#include "comm/observe/health.hpp"

namespace ccl::detail::health {

/// One rank of a communicator, as the health service knows it.
struct RankView {
  std::string address = "unknown";  // of its host, numeric
  int pid = -1, device = -1;
  Word process = 0;       // equal within one process
  bool dead = false;      // another rank has lost it, or its process has exited
  bool departed = false;  // its process has exited in order
  RankHealth health;      // if `status.answered`
  RankStatus status;
};

/// One communicator of this process.
struct CommView {
  Word hash = 0;                       // equal on all ranks
  Word first_host = 0, first_pid = 0;  // hashes of rank 0
  std::string name;
  bool on_gpus = false;
  int asking = 0;  // rank of this process
  std::vector<RankView> ranks;
  // False if nobody asked its other ranks: no time was left, or it ended meanwhile.
  bool asked = true;
  Report diagnosis;  // without the ranks
  int missing() const;
};

/// State of all communicators of this process and of their ranks everywhere.
struct Snapshot {
  std::vector<CommView> communicators;
  double collection_s = 0;
  int timeouts = 0;   // communicators with a rank that did not answer in time
  Word taken_ns = 0;  // since 1970
};

/// Sets what `ranks` say of each other, and the diagnosis. Pure.
void conclude(CommView& communicator);
/// Number of NCCL for the first failure of a rank.
int nccl_error(const RankHealth& health);

}  // namespace ccl::detail::health
