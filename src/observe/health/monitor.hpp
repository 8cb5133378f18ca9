#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "observe/health/session.hpp"
#include "observe/health/snapshot.hpp"

namespace ccl::detail::health {

/// Event of a process of the job, for clients of `MONITOR`.
struct Event {
  EventGroup group = lifecycle;
  const char* name = "";  // "PEER_NEW"
  std::string address;
  int pid = -1;
  std::vector<int> devices;
  std::string details;
  Word at_ns = 0;  // since 1970
};

std::string event_line(const Event& event, Format format);

/// Finds events by comparing what is known of the processes at two times.
class Monitor {
 public:
  /// Returns the events since the call before. The first call returns a PEER_NEW for each process.
  std::vector<Event> compare(const Snapshot& now);

 private:
  enum class State { answers, silent, dead };
  struct Process {
    State state = State::answers;
    std::vector<int> devices;
  };
  std::map<std::pair<std::string, int>, Process> known_;  // by address and pid
};

}  // namespace ccl::detail::health
