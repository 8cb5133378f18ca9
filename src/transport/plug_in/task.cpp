#include "transport/plug_in/task.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "transport/edge_error.hpp"
#include "transport/proxied/cause.hpp"
#include <poll.h>

namespace ccl::detail {
namespace {
constexpr unsigned quiet_rounds = 64;  // before a check of the control socket
constexpr auto leaving_limit = std::chrono::milliseconds{900};  // below that of the engine's end
}  // namespace

PlugInTask::PlugInTask(std::shared_ptr<PlugInLink> link, net::SecureSocket socket)
    : link_{std::move(link)}, control_{std::move(socket)}, deadline_{link_->deadline} {
  calls_library = true;
  for (const Wire& wire : link_->wires) {
    Channel& channel = channels_.emplace_back();
    channel.wire = wire;
    channel.requests.resize(std::size_t(wire.slot_count));
    if (link_->transfers() == nullptr) continue;
    const std::size_t c = channels_.size() - 1;
    channel.notes.emplace(link_->transfers(), link_->edge, wire, int(c), 0);
    const NetContext& context = link_->channels->context();
    channel.notes->use_networks({context.devices()[std::size_t(objects(c).device)].name});
    if (channel.notes->listener() != nullptr) objects(c).steps.resize(channel.requests.size());
  }
}

NetStep* PlugInTask::events_of(std::size_t c, Word step) {
  std::vector<NetStep>& steps = objects(c).steps;
  if (steps.empty()) return nullptr;
  NetStep& one = steps[channels_[c].index(step)];
  one = {channels_[c].notes->listener(), step};
  return &one;
}

ProxyTask::Progress PlugInTask::progress(ProxyCounters& counters) {
  // A thread that ends access to registered buffers closes the connections.
  const std::unique_lock lock{link_->channels->use, std::try_to_lock};
  if (!lock.owns_lock()) return Progress::none;
  const Progress progress = turn(counters);
  if (link_->channels->any_due()) link_->channels->end_due();
  return progress;
}

ProxyTask::Progress PlugInTask::turn(ProxyCounters& counters) {
  if (state_ != State::over && link_->channels->closing()) end();
  if (state_ == State::over) return over();
  const bool closing = ending();  // before the check of posted steps: no more are posted
  if (!link_->healthy()) {
    if (control_.open()) {
      control_.send(PlugInControl::refused, refusal(link_->context.status->result().error()));
    }
    end();
    return over();
  }
  if (control_.unsent()) control_.flush();
  if (state_ == State::waiting) arrive();
  bool moved = false;
  if (state_ == State::making) moved = make();
  if (state_ == State::running) moved = move(counters) || moved;
  const bool reported = readiness.reported && readiness.readable;
  if (!moved && state_ != State::over && (reported || state_ != State::running || closing)) {
    listen();
  } else if (!moved && !readiness.reported && ++quiet_ % quiet_rounds == 0) {
    listen();
  }
  if (closing && state_ != State::over) leave();
  if (state_ == State::over) return over();
  return moved ? Progress::some : Progress::none;
}

ProxyTask::Progress PlugInTask::over() {
  if (is_behind() && needs_peer()) {
    lost("it closed its end of the connection", 0);
  }
  return ending() && link_->channels->closed() ? Progress::ended : Progress::none;
}

ProxyInterest PlugInTask::interest() const {
  if (state_ == State::over) {
    const bool behind = is_behind();
    return {-1, 0, (behind && needs_peer()) || (ending() && link_->channels->closed()),
            ending() || (behind && sends() && link_->polled)};
  }
  ProxyInterest interest;
  interest.fd = control_.fd();
  interest.events = short(POLLIN | POLLRDHUP | (control_.unsent() ? POLLOUT : 0));
  if (state_ == State::waiting) {
    interest.pending = ending() || link_->arriving.contains(0);
    if (!ending()) interest.deadline = link_->last_look;
    return interest;
  }
  interest.pending = (state_ == State::running && could_move()) || link_->channels->any_due();
  // Nothing reports that a request is done, or that a call may be repeated.
  const bool urgent = state_ == State::making || ending() || link_->polled ||
                      std::any_of(channels_.begin(), channels_.end(),
                                  [](const Channel& channel) { return channel.blocked; });
  interest.polled = urgent || any_under_way();
  // Receives that are begun ahead of the lanes' calls.
  interest.for_helpers = !urgent && !interest.pending && !sends();
  return interest;
}

bool PlugInTask::arm() {
  // A message may end the use of the connections.
  const std::unique_lock lock{link_->channels->use, std::try_to_lock};
  if (!lock.owns_lock()) return true;
  if (state_ != State::over && control_.open()) listen();
  return false;
}

std::chrono::steady_clock::time_point PlugInTask::leave_by() {
  if (leave_by_ == decltype(leave_by_){}) {
    leave_by_ = std::chrono::steady_clock::now() + leaving_limit;
  }
  return leave_by_;
}

bool PlugInTask::any_under_way() const {
  return std::any_of(channels_.begin(), channels_.end(),
                     [](const Channel& channel) { return channel.under_way() > 0; });
}

std::vector<Word> PlugInTask::begun() const {
  std::vector<Word> all;
  for (const Channel& channel : channels_) all.push_back(channel.begun);
  return all;
}

std::vector<Word> PlugInTask::read_counts(const PlugInControlSocket::Message& message) {
  ControlReader body{message.body};
  auto counts = body.get_all<Word>();
  if (body.good() && counts.size() == channels_.size()) return counts;
  reject(fmt::format("it ends {} channels, not {}", counts.size(), channels_.size()));
  return {};
}

bool PlugInTask::register_slots(std::size_t c) {
  NetChannel& to = objects(c);
  const Wire& wire = channels_[c].wire;
  const GpuPiece& piece = link_->gpu_slots;
  const auto bytes = std::size_t(wire.slot_count) * std::size_t(link_->edge.shape.slot_bytes);
  const char* function = "regMr";
  int result = net_abi::success;
  if (!link_->is_on_gpu()) {
    result = call(function, c, [&] {
      return plug_in().reg(to.comm, wire.slots, bytes, net_abi::host_memory, &to.slots);
    });
  } else if (link_->dma_buf) {
    function = "regMrDmaBuf";
    result = call(function, c, [&] {
      return plug_in().reg_dma_buf(to.comm, piece.base, piece.bytes, link_->dma_buf.get(),
                                   &to.slots);
    });
  } else {
    result = call(function, c, [&] {
      return plug_in().reg(to.comm, piece.base, piece.bytes, net_abi::gpu_memory, &to.slots);
    });
  }
  if (result == net_abi::success) return true;
  to.slots = nullptr;
  broke(function, result,
        fmt::format("for {} bytes of slots{}", bytes,
                    link_->is_on_gpu() ? " in GPU memory, which CCL_IB_GPU_MEMORY=0 avoids" : ""));
  return false;
}

bool PlugInTask::test(Channel& channel, Index& bytes) {
  bool done = false;
  const int result = call("test", index_of(channel), [&] {
    return plug_in().test(channel.request(channel.done), done, bytes);
  });
  if (result == net_abi::success) return done;
  broke("test", result, fmt::format("for step {}", channel.done));
  return false;
}

void PlugInTask::listen() {
  while (state_ != State::over && control_.open()) {
    const auto message = control_.receive();
    if (!message) {
      readiness.readable = readiness.closed;
      if (!control_.broken()) return;
      if (!control_.fault().empty()) return reject(control_.fault());
      const int os_code = control_.os_code();
      const char* const broken = net::broken_record(os_code);
      if (peer_leaves()) {
        left_ = true;
      } else if (!left_) {
        lost(broken != nullptr ? broken : "its process ended or closed the connection", os_code);
      }
      control_.close();
      return;
    }
    if (message->say == PlugInControl::close_notify) {
      left_ = true;
      control_.close();
      if (state_ == State::making) return lost("it closed its end of the connection", 0);
      return;
    }
    if (message->say == PlugInControl::refused) {
      const auto error = read_refusal(link_->edge, message->body);
      return error ? give_up(*error) : reject(error.error().what);
    }
    on_message(*message);
  }
}

void PlugInTask::broke(const char* function, int result, std::string_view doing) {
  listen();  // the peer may have left or failed
  if (state_ == State::over) return;
  const Error error = plug_in().error(
      function, result, fmt::format("{}, {} {}", doing, sends() ? "to" : "from", peer_text()));
  if (link_->state() != PlugInLink::State::works) return give_up(error);
  // With the peer's process, requests may end by any error.
  const Status* const status = link_->context.status;
  const bool departed = left_ || (status != nullptr && status->has_departed(link_->edge.peer.rank));
  if (departed || (error.code == Errc::peer_lost && peer_departs())) return end();
  give_up(error);
}

void PlugInTask::give_up(Errc code, std::string what, int os_code) {
  Error error{code, std::move(what)};
  error.os_code = os_code;
  give_up(error);
}

/// A peer that only sees the socket close would assume that the process has died.
void PlugInTask::give_up(const Error& error) {
  if (control_.open() && !control_.broken()) {
    control_.send(PlugInControl::refused, refusal(error));
  }
  // Until it works, the waiting `connect` returns the error.
  const bool tell = !sends() || link_->state() == PlugInLink::State::works;
  end();
  link_->fail_with(error, tell);
}

/// The thread of the call is left behind, so this one has the task and the link.
Error PlugInTask::left_in_call(const char* function, double seconds, bool lanes) {
  state_ = State::over;
  link_->channels->leave();
  Error error = link_->channels->overdue(function, seconds);
  if (lanes && link_->channels->has_access()) {
    error.what += "; until the process ends, it may access the call's registered buffers";
  }
  log_warn(LogPart::net, "{}; its thread and the memory that it uses are left to it", error.what);
  if (control_.open() && !control_.broken()) {
    control_.send(PlugInControl::refused, refusal(error));
  }
  // Until it works, the waiting `connect` returns the error.
  link_->fail_with(error, !sends() || link_->state() == PlugInLink::State::works);
  return link_->annotated(std::move(error));
}

void PlugInTask::reject(std::string_view why) {
  give_up(Errc::mismatch, broken_protocol(link_->edge, why), EPROTO);
}

bool PlugInTask::peer_departs() const {
  return !await_cause(link_->context.status, link_->edge.peer.rank, [this] { return ending(); });
}

void PlugInTask::lost(const char* why, int os_code) {
  if (link_->state() == PlugInLink::State::works && peer_departs()) {
    if (!std::exchange(left_, true)) return;  // what it sent may still complete
    departed_ = true;
    end();
    return;
  }
  give_up(Errc::peer_lost,
          os_code == 0 ? fmt::format("lost {} ({})", peer_text(), why)
                       : fmt::format("lost {} ({}: {})", peer_text(), why, std::strerror(os_code)),
          os_code);
}

void PlugInTask::end() {
  state_ = State::over;
  link_->channels->begin_close();
  let_go();
}

std::string PlugInTask::peer_text() const {
  return fmt::format("rank {} on {}", link_->edge.peer.rank, link_->edge.peer.host);
}

}  // namespace ccl::detail
