#include "transport/ib/sender.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/lanes/host_memory.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/network_events.hpp"

// The sender's queue pairs, which it offers and makes by the receiver's plan.
namespace ccl::detail {
namespace {

constexpr int inline_wanted = 128;

}  // namespace

template <class Notes>
Result<void> IbSender<Notes>::offer() {
  close_pairs();  // no more writes to the table
  chains_.clear();
  resting_ = false;
  state_ = State::making;
  ++round_;
  set_deadline();
  CCL_CHECK(take_ports());
  std::memset(link_->slot_table.base(), 0, link_->slot_table.bytes());
  ControlWriter body;
  body.put(round_);
  body.put(std::uint64_t(reinterpret_cast<std::uintptr_t>(link_->slot_table.base())));
  body.put(std::int32_t(link_->tuning.qps_per_port));
  body.put(std::int32_t(link_->tuning.split ? 1 : 0));
  body.put_all(cards(board_memory_));
  body.put_all(nics_);
  body.put_all(bad_paths_);
  line_.send(IbControlType::offer, body.body);
  return {};
}

template <class Notes>
void IbSender<Notes>::make_anew(const std::string&) {
  if (auto done = offer(); !done) {
    give_up(done.error().code, fmt::format("{}; then: {}", trouble_, done.error().what));
  }
}

template <class Notes>
void IbSender<Notes>::readiness(const IbMessage& message) {
  ControlReader body{message.body};
  switch (message.say) {
    case IbControlType::plan:
      if (auto done = follow(body); !done) refuse(done.error());
      break;
    case IbControlType::go:
      if (body.get<std::uint32_t>() != round_ || state_ != State::making) break;
      if (!std::exchange(fresh_, false) && round_ > 1) {
        log_warn(LogPart::net, "{}: goes on over {}", peer_text(), paths());
        network_events.failovers.fetch_add(1, std::memory_order_relaxed);
      }
      state_ = State::running;
      link_->works();
      break;
    case IbControlType::rest:
      // Queue pairs that have failed meanwhile do not count: no step was under way.
      if (link_->late_calls == nullptr || (!resting_ && state_ != State::making)) {
        return reject("it rests without being asked to");
      }
      resting_ = false;
      close_line();
      come_to_rest();
      chains_.clear();
      break;
    case IbControlType::broken: {
      const auto round = body.get<std::uint32_t>();
      const auto bad = body.get_all<IbBadPath>();
      const auto text = body.get_all<char>();
      if (!body.good()) return reject("the end of a report is missing");
      if (const std::string why = wrong_paths(bad); !why.empty()) return reject(why);
      if (round != round_ || state_ != State::running) break;
      for (const IbBadPath& path : bad) note_bad(path);
      trouble(std::string(text.begin(), text.end()), true);
      break;
    }
    default:
      break;
  }
}

template <class Notes>
std::string IbSender<Notes>::paths() const {
  std::string text;
  for (const Pair& pair : pairs_) {
    if (pair.channel != 0) break;
    text += fmt::format("{}{} to {}", text.empty() ? "" : ", ", port_of(pair).text(),
                        peers_ports_[std::size_t(peer_port(pair))].where);
  }
  return text;
}

namespace {

/// True if the pairs are those of the channels' plans, between so many ports of both ends.
bool fits(const std::vector<IbChannelPlan>& plans, const std::vector<IbPair>& pairs,
          std::size_t ports, std::size_t peers_ports) {
  std::size_t total = 0;
  for (const IbChannelPlan& plan : plans) {
    total += plan.pairs;
    if (plan.parts == 0 || plan.pairs == 0 || plan.pairs % plan.parts != 0) return false;
  }
  if (total != pairs.size() || total >= (1 << 14) || peers_ports > max_ib_ports) return false;
  const auto has_ports = [&](const IbPair& pair) {
    return pair.sender_port < ports && pair.receiver_port < peers_ports;
  };
  return std::all_of(pairs.begin(), pairs.end(), has_ports);
}

/// Sizes of a sender's queue pairs. The first of a channel receives the notices of free slots.
struct PairSizes {
  int slots = 0;
  int receives = IbSlotTable::receives(slots);

  IbQpSize of(std::size_t n) const { return {2 * slots + 2, n == 0 ? receives : 1, inline_wanted}; }
  /// Number of completions of each port.
  std::map<std::uint32_t, int> entries(const std::vector<IbChannelPlan>& plans,
                                       const std::vector<IbPair>& planned) const {
    std::map<std::uint32_t, int> all;
    auto pair = planned.begin();
    for (const IbChannelPlan& plan : plans) {
      for (std::size_t n = 0; n < plan.pairs; ++n, ++pair) {
        all[pair->sender_port] += of(n).completions();
      }
    }
    return all;
  }
};

}  // namespace

template <class Notes>
Result<void> IbSender<Notes>::follow(ControlReader& body) {
  if (body.get<std::uint32_t>() != round_ || state_ != State::making) return {};
  if (!pairs_.empty()) return fail(Errc::mismatch, "the receiver has sent a second plan of ib");
  peers_ports_ = body.get_all<IbPortCard>();
  const auto plans = body.get_all<IbChannelPlan>();
  const auto planned = body.get_all<IbPair>();
  if (!body.good() || plans.size() != channels_.size() || !wrong_cards(peers_ports_).empty() ||
      !fits(plans, planned, ports_.size(), peers_ports_.size())) {
    return fail(Errc::mismatch, "the receiver's plan is not one of ib");
  }
  const PairSizes sizes{link_->edge.shape.slot_count};
  CCL_CHECK(open_queues(sizes.entries(plans, planned)));
  std::vector<IbPair> mine;
  chains_.resize(planned.size());
  std::size_t first = 0;
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    Channel& channel = channels_[c];
    const IbChannelPlan& plan = plans[c];
    if (plan.received < channel.done ||
        plan.received > HostMemory::load_acquire(channel.wire.posted)) {
      return fail(Errc::mismatch,
                  fmt::format("{} has received {} steps of channel {}, of which {} had arrived",
                              peer_text(), plan.received, c, channel.done));
    }
    channel.first = first;
    channel.pairs = plan.pairs;
    channel.parts = plan.parts;
    // Data in flight has arrived, although its completion was not requested.
    advanced_ = advanced_ || plan.received > channel.done;
    channel.next = plan.received;
    return_steps(channel, plan.received);
    const std::size_t groups = channel.pairs / channel.parts;
    for (std::size_t n = 0; n < channel.pairs; ++n) {
      const IbPair& theirs = planned[first + n];
      const IbPort& port = ports_[theirs.sender_port];
      CCL_TRY(auto qp, make_qp(theirs.sender_port, sizes.of(n)));
      for (int k = 0; n == 0 && k < sizes.receives; ++k) {
        if (const int code = IbSlotTable::receive(*qp, c); code != 0) {
          return fail(Errc::network, fmt::format("receives cannot be posted on {} ({})",
                                                 port.text(), std::strerror(code)));
        }
      }
      CCL_CHECK(qp->connect(port, peers_ports_[theirs.receiver_port], theirs.number, theirs.psn,
                            link_->tuning));
      IbPair own = theirs;
      own.number = qp->number();
      own.psn = qp->psn();
      mine.push_back(own);
      Chain& chain = chains_[first + n];
      chain.requests.resize(std::size_t(2 * sizes.slots + 2));
      chain.places.resize(chain.requests.size());
      const int adaptive = link_->tuning.adaptive;
      chain.announces = adaptive == -2 ? port.infiniband : adaptive == 1;
      // First step of this plan.
      const std::size_t group = n / channel.parts;
      chain.undone = channel.next + (group + groups - channel.next % groups) % groups;
      pairs_.push_back({std::move(qp), int(c), own, theirs});
    }
    if constexpr (Notes::wanted) {
      channel.notes.use_networks(networks_of(channel.first, channel.pairs, channel.parts));
    }
    first += channel.pairs;
  }
  if (!open_pairs()) return {};
  ControlWriter answer;
  answer.put(round_);
  answer.put_all(mine);
  line_.send(IbControlType::ready, answer.body);
  return {};
}

namespace {

template <class Notes>
std::shared_ptr<ProxyTask> make_sender(const std::shared_ptr<IbLink>& link,
                                       net::SecureSocket socket) {
  auto sender = std::make_shared<IbSender<Notes>>(link, std::move(socket));
  if (link->late_calls != nullptr) return sender;
  if (auto started = sender->start(); !started) link->fail_with(started.error(), false);
  return sender;
}
}  // namespace

std::shared_ptr<ProxyTask> make_ib_sender(std::shared_ptr<IbLink> link, net::SecureSocket socket) {
  return link->transfers() != nullptr ? make_sender<TransferNotes>(link, std::move(socket))
                                      : make_sender<NoTransferNotes>(link, std::move(socket));
}

}  // namespace ccl::detail
