#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "transport/edge_error.hpp"
#include "transport/ib/task.hpp"
#include "transport/proxied/cause.hpp"

// Ends and rests of a task and its queue pairs.
namespace ccl::detail {

void IbTask::on_peer_closed() {
  // A waiting `connect` must return the error.
  if (needs_peer() || (sends() && link_->state() == IbLink::State::connecting)) {
    lost("it closed its end of the connection", 0);
    return;
  }
  state_ = State::over;
  ignore_line();
  take_arrived();
  close_pairs();
  return_sent();
  let_go();
}

void IbTask::come_to_rest() {
  close_pairs();
  state_ = State::waiting;
  rested_ = true;
  log_info(LogPart::net, "the idle connection {} {} has closed", sends() ? "to" : "from",
           peer_text());
}

void IbTask::give_up(Errc code, std::string what, int os_code) {
  Error error;
  error.code = code;
  error.what = std::move(what);
  error.os_code = os_code;
  refuse(error);
}

/// A peer that only sees the socket close would assume that the process has died.
void IbTask::send_error(const Error& error) {
  if (!line_.open() || line_.broken()) return;
  line_.send(IbControlType::refused, refusal(error));
}

void IbTask::refuse(const Error& error) {
  send_error(error);
  const bool tell = fails_communicator();
  end_pairs();
  link_->fail_with(error, tell);
}

void IbTask::reject(std::string_view why) {
  give_up(Errc::mismatch, broken_protocol(link_->edge, why), EPROTO);
}

bool IbTask::peer_departs() const {
  return !await_cause(link_->context.status, link_->edge.peer.rank, [this] { return ending(); });
}

void IbTask::lost(const char* why, int os_code) {
  if (fails_communicator() && peer_departs()) {
    if (!std::exchange(left_, true)) return;  // what it sent may still complete
    departed_ = true;
    end_pairs();
    return;
  }
  give_up(Errc::peer_lost,
          os_code == 0 ? fmt::format("lost {} ({})", peer_text(), why)
                       : fmt::format("lost {} ({}: {})", peer_text(), why, std::strerror(os_code)),
          os_code);
}

void IbTask::cannot_open(const Error& error) {
  if (peer_departs()) {
    departed_ = true;
    end_pairs();
    return;
  }
  give_up(error.code,
          fmt::format("the connection to {}, which a step needs, cannot be opened ({})",
                      peer_text(), error.what),
          error.os_code);
}

void IbTask::peer_gave_up(const IbMessage& message) {
  const auto error = read_refusal(link_->edge, message.body);
  if (!error) return reject(error.error().what);
  if (fails_communicator()) (void)peer_departs();
  refuse(*error);
}

}  // namespace ccl::detail
