// A profiler plug-in, as a program for NCCL would have it. It keeps what it is called with as lines
// of text. CCL_TEST_PROFILER selects what it refuses.
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "nccl/plug_in/abi.hpp"
#include <unistd.h>

using namespace ccl::detail;
using namespace ccl::detail::nccl;

namespace {

std::mutex mutex;
std::string lines;
int open_events = 0, inits = 0;

bool refuses(const char* what) {
  const char* const set = std::getenv("CCL_TEST_PROFILER");
  return set != nullptr && std::strcmp(set, what) == 0;
}
std::string text_of(const char* text) {
  return text == nullptr ? "none" : text;
}

struct Event {
  EventKind kind;
  int rank;
  Event* parent;
  std::string name{};  // of a call: "AllReduce 2"; of an op: "sends to 1 channel 0"
  bool over = false;
  int announced = 0, steps = 0;  // of an op
  std::size_t bytes = 0;         // of an op, or a step
  // Of a call: channels that it has told of, and the begin of each that has come.
  int channels = 0;
  std::vector<std::uint64_t> begun{};
  std::set<int> numbers{};
};

ncclResult_t init(void** context, std::uint64_t communicator, int* mask, const char* name,
                  int hosts, int ranks, int rank, PlugInLogger log) {
  if (refuses("init")) return ncclSystemError;
  if (refuses("context")) return ncclSuccess;  // switched off, as NCCL's Inspector is by default
  const std::lock_guard lock{mutex};
  *context = new int{rank};
  // Once for all communicators, as NCCL's example does.
  if (inits++ == 0 && refuses("proxies")) {
    *mask = event_proxy_op | event_proxy_step;  // no others
  } else if (inits == 1 && refuses("control")) {
    *mask = event_proxy_ctrl;
  } else if (inits == 1 && refuses("net")) {
    *mask = event_net;
  } else if (inits == 1 && !refuses("events")) {
    *mask = event_coll | event_p2p | event_kernel_ch;
  }
  lines += std::to_string(rank) + " init " + text_of(name) + " " + std::to_string(hosts) + "/" +
           std::to_string(ranks) + (communicator != 0 ? "" : " without id") + "\n";
  log(plug_in_warn, 1, "test.cc", 7, "rank %d", rank);
  return ncclSuccess;
}

ncclResult_t start(void*, void** handle, EventDescription* what) {
  if (refuses("start")) return ncclInternalError;
  const std::lock_guard lock{mutex};
  auto* const parent = static_cast<Event*>(what->parent);
  auto* const event = new Event{EventKind(what->kind), what->rank, parent};
  ++open_events;
  lines += std::to_string(what->rank) + " start ";
  switch (what->kind) {
    case event_group_api:
      lines += "group";
      break;
    case event_coll_api:
      lines += "api " + text_of(what->coll_api.func) + " tag " + std::to_string(what->coll_api.tag);
      break;
    case event_p2p_api:
      lines += "api " + text_of(what->p2p_api.func);
      break;
    case event_coll:
      event->name = text_of(what->coll.func) + " " + std::to_string(what->coll.number);
      event->channels = what->coll.channels;
      lines += "coll " + text_of(what->coll.func) + " " + std::to_string(what->coll.number) + " " +
               std::to_string(what->coll.count) + " " + text_of(what->coll.type) + " root " +
               std::to_string(what->coll.root) + " " + text_of(what->coll.algo) + " " +
               text_of(what->coll.proto);
      break;
    case event_p2p:
      event->name = text_of(what->p2p.func) + " " + std::to_string(what->p2p.peer);
      lines += "p2p " + text_of(what->p2p.func) + " " + std::to_string(what->p2p.count) + " " +
               text_of(what->p2p.type) + " peer " + std::to_string(what->p2p.peer);
      break;
    case event_kernel_ch:
      lines += "channel";
      event->begun = {what->kernel_ch.timer};
      parent->begun.push_back(what->kernel_ch.timer);
      parent->numbers.insert(what->kernel_ch.channel);
      break;
    case event_proxy_op:
      event->name = (what->proxy_op.sends != 0 ? "sends to " : "receives from ") +
                    std::to_string(what->proxy_op.peer) + " channel " +
                    std::to_string(what->proxy_op.channel);
      event->announced = what->proxy_op.steps;
      lines += what->proxy_op.sends != 0 ? "sends to " : "receives from ";
      lines += std::to_string(what->proxy_op.peer) + (what->proxy_op.pid == ::getpid() ? "" : "?") +
               (what->proxy_op.steps > 0 && what->proxy_op.chunk_bytes > 0 ? "" : " nothing");
      break;
    case event_proxy_step:
      lines += "step " + std::to_string(what->proxy_step.step);
      break;
    case event_net:
      lines += "net " + std::to_string(what->net.id) + " says " +
               std::to_string(*static_cast<const int*>(what->net.data));
      break;
    case event_proxy_ctrl:
      lines += "control";
      break;
    default:
      lines += "something else";
  }
  if (parent != nullptr) lines += " in " + std::to_string(std::uint64_t(parent->kind));
  if (parent != nullptr && parent->over) lines += " that is over";
  lines += "\n";
  *handle = event;
  return ncclSuccess;
}

ncclResult_t stop(void* handle) {
  const std::lock_guard lock{mutex};
  --open_events;
  auto* const event = static_cast<Event*>(handle);
  event->over = true;
  if (event->kind == event_proxy_step) {
    ++event->parent->steps;
    event->parent->bytes += event->bytes;
  }
  if (event->kind == event_coll && event->channels > 1) {
    const std::set<std::uint64_t> times{event->begun.begin(), event->begun.end()};
    lines += std::to_string(event->rank) + " call " + event->name + ": " +
             std::to_string(event->numbers.size()) + "/" + std::to_string(event->channels) +
             " channels at " + std::to_string(times.size()) + " times\n";
  }
  if (event->kind == event_proxy_op) {
    lines += std::to_string(event->rank) + " op " + event->name + " for " + event->parent->name +
             ": " + std::to_string(event->steps) + "/" + std::to_string(event->announced) +
             " steps, " + std::to_string(event->bytes) + " bytes\n";
  }
  lines +=
      std::to_string(event->rank) + " stop " + std::to_string(std::uint64_t(event->kind)) + "\n";
  return ncclSuccess;  // the event stays: others may name it
}

ncclResult_t record(void* handle, EventState state, EventStateArguments* more) {
  const std::lock_guard lock{mutex};
  auto* const event = static_cast<Event*>(handle);
  if (event->kind == event_proxy_op || event->kind == event_proxy_step) {
    lines += std::to_string(event->rank) + " state " + std::to_string(int(state)) + " of " +
             std::to_string(std::uint64_t(event->kind));
    const bool moves = state == state_send_wait || state == state_recv_flush_wait;
    if (moves && more != nullptr) event->bytes = more->bytes;
    lines += moves && more != nullptr && more->bytes > 0 ? " with bytes\n" : "\n";
  }
  if (event->kind == event_proxy_ctrl) {
    lines += std::to_string(event->rank) + " state " + std::to_string(int(state)) +
             " of 32, tasks " + std::to_string(more->proxy_ops) + "\n";
  }
  if (event->kind == event_net) {
    lines += std::to_string(event->rank) + " state " + std::to_string(int(state)) +
             " of 128 says " + std::to_string(*static_cast<const int*>(more->data)) + "\n";
  }
  if (state != state_kernel_ch_stop) return ncclSuccess;
  lines += std::to_string(event->rank) +
           (more->timer >= event->begun[0] && event->begun[0] != 0 ? " timed\n" : " not timed\n");
  return ncclSuccess;
}

ncclResult_t finalize(void* context) {
  const std::lock_guard lock{mutex};
  lines += std::to_string(*static_cast<int*>(context)) + " end, open " +
           std::to_string(open_events) + "\n";
  delete static_cast<int*>(context);
  return ncclSuccess;
}

}  // namespace

extern "C" {
__attribute__((visibility("default")))
ProfilerPlugIn ncclProfiler_v6{"old", init, start, stop, record, finalize};
__attribute__((visibility("default"))) const char* ccl_test_lines() {
  static std::string read;  // other threads go on writing
  const std::lock_guard lock{mutex};
  read = lines;
  return read.c_str();
}
}
