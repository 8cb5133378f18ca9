#include "transport/ib/task.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/field_check.hpp"
#include "base/network_events.hpp"
#include "net/message_rules.hpp"
#include "transport/ib/verbs/port_choice.hpp"
#include <poll.h>

namespace ccl::detail {
namespace {
constexpr unsigned quiet_rounds = 64;  // before a check of the control socket and the devices
constexpr int max_tries = 3;           // to recreate queue pairs, while nothing moves
}  // namespace

IbTask::IbTask(std::shared_ptr<IbLink> link, net::SecureSocket socket)
    : link_{std::move(link)}, all_{*link_->completions}, line_{std::move(socket)} {}

IbTask::~IbTask() {
  (void)link_->open_to_peer({});  // the link names no queue pairs that are gone
  pairs_.clear();
  flushes_.clear();
  queues_.clear();
  close_line();
  all_.leave(in_);
}

ProxyTask::Progress IbTask::progress(ProxyCounters& counters) {
  const bool closing = ending();  // before the check of posted steps: no more are posted
  if (in_.place == IbInbox::outside) {
    all_.join(in_);
    if (state_ != State::over) all_.watch(line_.fd(), in_);
  }
  if (line_.unsent()) line_.flush();
  if (!line_.open() && !left_ && state_ == State::waiting) arrive();
  if (is_behind() && needs_peer()) on_peer_closed();
  // Lanes have failed, and their failure is that of the communicator.
  if (state_ != State::over && link_->is_closed_to_peer()) end_pairs();
  bool moved = false;
  if (state_ == State::running) {
    moved = poll();
    if (state_ == State::running && move(counters)) moved = true;
  }
  count(counters);
  if (closing && (finished() || state_ == State::over || !link_->healthy())) {
    if (line_.open() && link_->healthy()) line_.send(IbControlType::close_notify);
    if (!link_->healthy()) send_error(link_->context.status->result().error());
    return Progress::ended;
  }
  if (moved) {
    quiet_ = 0;
    return Progress::some;
  }
  if (state_ != State::running || in_.aside || ++quiet_ % quiet_rounds == 0) look_aside();
  return Progress::none;
}

ProxyInterest IbTask::interest() const {
  if (state_ == State::over) {
    const bool behind = is_behind();
    return {all_.fd_for(in_), POLLIN, ending() || (behind && needs_peer()),
            behind && sends() && waits_for_lanes()};
  }
  ProxyInterest interest{all_.fd_for(in_), POLLIN, ending(), false};
  if (state_ == State::running) {
    interest.pending = interest.pending || in_.any() || could_move();
    interest.polled = waits_for_lanes();
  } else if (state_ == State::making) {
    interest.polled = true;  // for the deadline
  } else {
    const LateCalls* const late = link_->late_calls.get();
    const bool came = late != nullptr ? late->contains(0) : link_->arriving.contains(0);
    interest.pending = interest.pending || came;
    interest.polled = late != nullptr && waits_for_lanes();
    if (!line_.open() && !left_ && !sends()) interest.deadline = link_->look_for_sender();
  }
  return interest;
}

bool IbTask::poll() {
  for (const auto& queue : queues_) queue->take_turn();
  if (!in_.any()) return false;
  in_batch_ = true;
  const bool any = take_completions([this](const ibv_wc& completion) {
    if (!pairs_.empty()) completed(completion);
  });
  in_batch_ = false;
  if (held_) {
    const Held held = *std::exchange(held_, {});
    if (state_ == State::running) trouble(held.text, held.worth_another_try);
  }
  if (in_.lost_queue.empty()) return any;
  const std::string device = std::exchange(in_.lost_queue, {});
  if (state_ == State::running) {
    trouble(fmt::format("the completion queue of {} cannot be read", device), true);
  }
  return true;
}

void IbTask::look_aside() {
  in_.aside = false;
  if (line_.open()) listen_to_line();
  for (auto& [device, seen] : events_) {
    device->read_events();
    const unsigned now = device->events();
    if (std::exchange(seen, now) == now || state_ != State::running) continue;
    for (std::size_t n = 0; n < ports_.size(); ++n) {
      const IbPort& port = ports_[n];
      const bool used = std::any_of(pairs_.begin(), pairs_.end(),
                                    [&](const Pair& pair) { return own_port(pair) == int(n); });
      if (!used || port.device != device || device->port_is_active(port.number)) continue;
      trouble(fmt::format("{} of rank {} on {} went down", port.text(), link_->edge.self.rank,
                          link_->edge.self.host),
              true);
      return;
    }
  }
  if (state_ == State::making && std::chrono::steady_clock::now() > deadline_) {
    give_up(Errc::timed_out,
            fmt::format("{} did not answer within {:.0f} s{}{}", peer_text(),
                        link_->context.deadline_s, trouble_.empty() ? "" : " after ", trouble_));
  }
}

void IbTask::listen_to_line() {
  while (state_ != State::over && line_.open()) {
    const auto message = line_.receive();
    if (!message) {
      if (!line_.broken()) return;
      if (!line_.fault().empty()) return reject(line_.fault());
      const int os_code = line_.os_code();
      close_line();
      if (rested_) return;
      const char* const broken = net::broken_record(os_code);
      const char* const ended = "its process ended or closed the connection";
      if (!left_) lost(broken != nullptr ? broken : ended, os_code);
      return;
    }
    if (message->say == IbControlType::close_notify) {
      left_ = true;
      close_line();
      if (state_ == State::making) on_peer_closed();
      return;
    }
    if (message->say == IbControlType::refused) return peer_gave_up(*message);
    readiness(*message);
  }
}

void IbTask::ignore_line() {
  if (in_.place != IbInbox::outside) all_.forget(line_.fd());
}

void IbTask::close_line() {
  ignore_line();
  line_.close();
}

std::string IbTask::wrong_cards(const std::vector<IbPortCard>& cards) {
  FieldCheck check;
  check.in_range("number of ports", cards.size(), 1, std::int64_t(max_ib_ports));
  for (const IbPortCard& card : cards) {
    check.in_range("MTU of a port", card.mtu, int(IBV_MTU_256), int(IBV_MTU_4096))
        .flag("kind of a port", card.infiniband)
        .text("name of a port", card.where);
  }
  return check.why();
}

std::string IbTask::wrong_paths(const std::vector<IbBadPath>& paths) {
  FieldCheck check;
  check.in_range("number of bad paths", paths.size(), 0, std::int64_t(max_ib_ports * max_ib_ports));
  for (const IbBadPath& path : paths) {
    check.text("sender's port", path.sender).text("receiver's port", path.receiver);
  }
  return check.why();
}

Result<void> IbTask::take_ports() {
  CCL_TRY(IbPorts found, find_ib_ports());
  if (found.ports.empty()) return fail(Errc::network, found.why);
  IbLinkPorts chosen =
      ports_of_link(found.ports, link_->edge.nics, int(link_->edge.shape.channels));
  ports_.clear();
  nics_ = std::move(chosen.nic_of_wire);
  slot_memory_.clear();
  board_memory_.clear();
  events_.clear();
  for (const IbPort& port : chosen.ports) CCL_CHECK(take_port(port));
  if (!ports_.empty()) return {};
  return fail(Errc::network, "no NIC that is up serves the slots in GPU memory");
}

/// Registers the memory with the port's device. A port whose device cannot serve memory of the GPU
/// is left out.
Result<void> IbTask::take_port(const IbPort& port) {
  const auto& unfit = link_->unfit;
  const bool on_gpu = link_->gpu_slots != nullptr;
  if (on_gpu && std::find(unfit.begin(), unfit.end(), port.device) != unfit.end()) return {};
  auto memory = on_gpu ? link_->gpu_slots->with(port.device)
                       : port.device->memory(link_->memory.base(), link_->memory.bytes(),
                                             link_->slot_access(false));
  if (!memory && on_gpu) return {};
  if (!memory) return fail(std::move(memory).error());
  const unsigned local = IBV_ACCESS_LOCAL_WRITE;
  CCL_TRY(auto of_board, port.device->memory(link_->slot_table.base(), link_->slot_table.bytes(),
                                             sends() ? local | IBV_ACCESS_REMOTE_WRITE : local));
  ports_.push_back(port);
  slot_memory_.push_back(*std::move(memory));
  board_memory_.push_back(std::move(of_board));
  const bool known = std::any_of(events_.begin(), events_.end(),
                                 [&](const auto& e) { return e.first == port.device; });
  if (known) return {};
  port.device->read_events();
  events_.emplace_back(port.device, port.device->events());
  return {};
}

Result<void> IbTask::open_queues(const std::map<std::uint32_t, int>& entries) {
  std::map<const IbDevice*, std::pair<std::shared_ptr<IbDevice>, int>> wanted;
  for (const auto& [port, count] : entries) {
    auto& [device, sum] = wanted[ports_[port].device.get()];
    device = ports_[port].device;
    sum += count;
  }
  for (const auto& [key, one] : wanted) {
    CCL_TRY(auto queue, all_.share(one.first, one.second, in_));
    queues_.push_back(std::move(queue));
  }
  return {};
}

IbCompletions::Share& IbTask::queue_of(std::size_t port) const {
  const auto found = std::find_if(queues_.begin(), queues_.end(), [&](const auto& queue) {
    return queue->device() == ports_[port].device.get();
  });
  return **found;
}

Result<std::unique_ptr<IbQp>> IbTask::make_qp(std::size_t port, const IbQpSize& size) const {
  IbCompletions::Share& queue = queue_of(port);
  CCL_TRY(auto qp, IbQp::make(ports_[port], queue.queue(), size, link_->tuning));
  queue.add(qp->number());
  return qp;
}

std::vector<IbPortCard> IbTask::cards(const std::vector<std::shared_ptr<IbMemory>>& memory) const {
  std::vector<IbPortCard> all;
  for (std::size_t n = 0; n < ports_.size(); ++n) {
    all.push_back(IbPortCard::of(ports_[n]));
    all.back().key = memory[n]->remote_key();
  }
  return all;
}

void IbTask::close_pairs() {
  // Lanes that fail from here on find no pairs and return, so none may use their memory still.
  if (!link_->zero_copies.empty()) {
    for (const Pair& pair : pairs_) pair.qp->stop();
  }
  (void)link_->open_to_peer({});
  pairs_.clear();  // before their queues
  flushes_.clear();
  queues_.clear();
  in_.completions.clear();
  in_.lost_queue.clear();
}

bool IbTask::open_pairs() {
  std::vector<IbQp*> open;
  for (const Pair& pair : pairs_) open.push_back(pair.qp.get());
  if (link_->open_to_peer(std::move(open))) return true;
  end_pairs();
  return false;
}

void IbTask::end_pairs() {
  state_ = State::over;
  ignore_line();
  close_pairs();
  let_go();
}

void IbTask::note_bad(const IbBadPath& path) {
  const bool known = std::find(bad_paths_.begin(), bad_paths_.end(), path) != bad_paths_.end();
  if (!known) bad_paths_.push_back(path);
}

void IbTask::trouble(const Pair& pair, const ibv_wc& completion, const std::string& what) {
  if (held_) return;
  const IbFailure cause = explain(completion.status);
  const IbPort& mine = port_of(pair);
  const IbPortCard& theirs = peers_ports_[std::size_t(peer_port(pair))];
  const std::string text = fmt::format(
      "{} over {} of rank {} on {} (queue pair {}) and {} of {} (queue pair {}) ended with {} ({}; "
      "status {}, vendor's code {}); {}",
      what, mine.text(), link_->edge.self.rank, link_->edge.self.host, pair.qp->number(),
      theirs.where, peer_text(), pair.theirs.number, cause.name, cause.why, int(completion.status),
      completion.vendor_err, cause.help);
  IbBadPath bad{};
  mine.text().copy(sends() ? bad.sender : bad.receiver, sizeof bad.sender - 1);
  std::copy_n(theirs.where, sizeof theirs.where, sends() ? bad.receiver : bad.sender);
  note_bad(bad);
  trouble(text, cause.worth_another_try);
}

void IbTask::trouble(const std::string& text, bool worth_another_try) {
  if (in_batch_) {
    if (!held_) held_ = Held{text, worth_another_try};
    return;
  }
  listen_to_line();  // the peer may have left or failed
  if (state_ != State::running) return;
  if (link_->is_closed_to_peer()) return end_pairs();
  if (left_) {
    on_peer_closed();
    return;
  }
  tries_ = std::exchange(advanced_, false) ? 1 : tries_ + 1;
  if (!worth_another_try || tries_ > max_tries) {
    give_up(Errc::network, text);
    return;
  }
  log_warn(LogPart::net, "{}; making the queue pairs anew, try {} of {}", text, tries_, max_tries);
  network_events.retries.fetch_add(1, std::memory_order_relaxed);
  trouble_ = text;
  make_anew(text);
}

void IbTask::cannot_receive(const Pair& pair, int code) {
  trouble(fmt::format("receives from {} cannot be posted on queue pair {} of {} ({})", peer_text(),
                      pair.qp->number(), port_of(pair).text(), std::strerror(code)),
          true);
}

void IbTask::set_deadline() {
  deadline_ = std::chrono::steady_clock::now() +
              std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                  std::chrono::duration<double>(link_->context.deadline_s));
}

std::vector<std::string> IbTask::networks_of(std::size_t first, std::size_t pairs,
                                             std::size_t parts) const {
  std::vector<std::string> all;
  for (std::size_t group = 0; group < pairs / parts; ++group) {
    std::set<std::string> names;
    for (std::size_t p = 0; p < parts; ++p) {
      const IbPort& port = port_of(pairs_[first + group * parts + p]);
      names.insert(fmt::format("{}:{}", port.device->name(), port.number));
    }
    all.push_back(fmt::format("{}", fmt::join(names, "+")));
  }
  return all;
}

std::string IbTask::peer_text() const {
  return fmt::format("rank {} on {}", link_->edge.peer.rank, link_->edge.peer.host);
}

}  // namespace ccl::detail
