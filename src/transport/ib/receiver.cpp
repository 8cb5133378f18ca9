#include "transport/ib/receiver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/field_check.hpp"

// The receiver's queue pairs: their plan, how they are recreated, and their end.
namespace ccl::detail {
namespace {

constexpr auto drain_limit = std::chrono::milliseconds{200};

}  // namespace

template <class Notes>
void IbReceiver<Notes>::readiness(const IbMessage& message) {
  if (rested_) return;  // its next line has what counts
  ControlReader body{message.body};
  switch (message.say) {
    case IbControlType::offer:
      if (auto done = plan(body); !done) refuse(done.error());
      break;
    case IbControlType::ready:
      if (auto done = go(body); !done) refuse(done.error());
      break;
    case IbControlType::rest: {
      const auto round = body.get<std::uint32_t>();
      auto steps = body.get_all<Word>();
      if (!body.good() || steps.size() != channels_.size() || !link_->sender_opens_late) {
        return reject("its request to rest is not one of ib");
      }
      if (round == round_ && state_ == State::running) last_steps_ = std::move(steps);
      break;
    }
    default:
      break;
  }
}

template <class Notes>
void IbReceiver<Notes>::drain() {
  draining_ = true;
  for (const Pair& pair : pairs_) pair.qp->stop();
  const auto any = [this] {
    return std::any_of(posted_receives_.begin(), posted_receives_.end(),
                       [](std::size_t count) { return count > 0; });
  };
  poll_while(any, [this](const ibv_wc& completion) {
    if (!IbSlotTable::is_of_a_board(completion)) completed(completion);
  });
  draining_ = false;
}

template <class Notes>
template <class Any, class Take>
void IbReceiver<Notes>::poll_while(Any any, Take take) {
  const auto end = std::chrono::steady_clock::now() + drain_limit;
  // A thread that had no core for so long still takes what has arrived, behind the completions of
  // all others that share the queues.
  bool more = true;
  while (any() && (more || std::chrono::steady_clock::now() < end)) {
    more = false;
    for (const auto& queue : queues_) more = queue->poll() || more;
    (void)take_completions(take);
  }
}

template <class Notes>
void IbReceiver<Notes>::take_arrived() {
  if (pairs_.empty()) return;
  drain();
  if (!link_->flushes()) return;  // the lanes have all of it
  for (std::size_t c = 0; c < channels_.size(); ++c) show(c);
  const auto any = [this] {
    return std::any_of(channels_.begin(), channels_.end(),
                       [](const Channel& channel) { return channel.flushed != channel.received; });
  };
  poll_while(any, [this](const ibv_wc& completion) {
    if (IbFlush::is_one(completion)) flushed(completion);
  });
  if (any()) {
    give_up(Errc::network, fmt::format("what {} sent before it left cannot be flushed to GPU "
                                       "memory",
                                       peer_text()));
  }
}

template <class Notes>
Result<void> IbReceiver<Notes>::plan(ControlReader& body) {
  const auto round = body.get<std::uint32_t>();
  if (round <= round_) return {};
  const bool again = round_ > 0;
  round_ = round;
  slot_table_ = body.get<std::uint64_t>();
  Offer offer;
  offer.qps = body.get<std::int32_t>();
  const auto split = body.get<std::int32_t>();
  auto theirs = body.get_all<IbPortCard>();
  const auto their_nics = body.get_all<std::int32_t>();
  const auto bad = body.get_all<IbBadPath>();
  const std::string why =
      FieldCheck{}
          .in_range("queue pairs of a port", offer.qps, 1, 64)
          .flag("split of steps", split)
          .part("ports", wrong_cards(theirs))
          .in_range("number of NICs", their_nics.size(), channels_.size(), channels_.size())
          .part("bad paths", wrong_paths(bad))
          .require(body.good(), "its end is missing")
          .why();
  if (!why.empty()) {
    return fail(Errc::mismatch, fmt::format("the sender's offer is not one of ib ({})", why));
  }
  offer.split = split != 0 || link_->tuning.split;
  // This end may have seen others fail, of which the sender does not know yet.
  for (const IbBadPath& path : bad) note_bad(path);
  if (again && !pairs_.empty()) drain();
  close_pairs();
  posted_receives_.clear();
  state_ = State::making;
  last_steps_.clear();
  set_deadline();
  peers_ports_ = std::move(theirs);
  CCL_CHECK(take_ports());
  std::vector<std::vector<IbPath>> all_paths;
  std::vector<IbChannelPlan> plans;
  std::size_t total = 0;
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    all_paths.push_back(
        choose_paths(c, {their_nics[c], nics_[c]}, peers_ports_, ports_, bad_paths_));
    if (all_paths.back().empty()) {
      return fail(Errc::network, "no port of the sender is of the kind of one of the receiver's");
    }
    plans.push_back(plan_channel(c, offer, all_paths.back().size(), total));
    total += channels_[c].pairs;
  }
  // Data that came over other ports before a failure must be flushed by their devices.
  std::set<std::uint32_t> used;
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    auto& writers = channels_[c].writers;
    const auto writer = [&](std::uint32_t n) {
      return std::pair<const IbDevice*, int>{ports_[n].device.get(), ports_[n].number};
    };
    for (const IbPath& path : all_paths[c]) writers.insert(writer(path.second));
    for (std::uint32_t n = 0; n < ports_.size(); ++n) {
      if (link_->flushes() && writers.count(writer(n)) != 0) used.insert(n);
    }
    for (const IbPath& path : all_paths[c]) used.insert(path.second);
  }
  CCL_CHECK(open_completions(all_paths, used));
  std::vector<IbPair> planned;
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    CCL_CHECK(make_pairs(c, all_paths[c], planned));
    if constexpr (Notes::wanted) {
      Channel& channel = channels_[c];
      channel.notes.use_networks(networks_of(channel.first, channel.pairs, channel.parts));
    }
  }
  if (!open_pairs()) return {};
  ControlWriter answer;
  answer.put(round_);
  answer.put_all(cards(slot_memory_));
  answer.put_all(plans);
  answer.put_all(planned);
  line_.send(IbControlType::plan, answer.body);
  return {};
}

template <class Notes>
IbChannelPlan IbReceiver<Notes>::plan_channel(std::size_t c, const Offer& offer, std::size_t paths,
                                              std::size_t first) {
  const auto per_path = std::size_t(std::max(offer.qps, link_->tuning.qps_per_port));
  const auto slots = std::size_t(link_->edge.shape.slot_count);
  Channel& channel = channels_[c];
  channel.parts = paths;
  // Groups take turns by the low bits of the step, so that slots and turns fit.
  std::size_t groups = 1;
  while (!offer.split && groups * 2 <= per_path && groups * 2 <= slots) groups *= 2;
  channel.pairs = channel.parts * (offer.split ? per_path : groups);
  if (offer.split) channel.parts = channel.pairs;
  channel.first = first;
  channel.offered = channel.first_offered = channel.received;
  link_->freed[c].may = false;
  link_->freed[c].offered = channel.offered;
  std::fill(channel.landings.begin(), channel.landings.end(), ZeroCopy::Landing{});
  std::fill(channel.lands.begin(), channel.lands.end(), false);
  channel.slot_table.restart();
  channel.reads = 0;
  return {std::uint32_t(channel.pairs), std::uint32_t(channel.parts), channel.received};
}

template <class Notes>
Result<void> IbReceiver<Notes>::open_completions(const std::vector<std::vector<IbPath>>& paths,
                                                 const std::set<std::uint32_t>& used) {
  const int flushes = int(channels_.size()) + 1;
  std::map<std::uint32_t, int> entries;
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    for (std::size_t n = 0; n < channels_[c].pairs; ++n) {
      entries[paths[c][n % paths[c].size()].second] += qp_size().completions();
    }
  }
  for (const std::uint32_t n : used) {
    entries[n] += link_->flushes() ? IbFlush::size(flushes).completions() : 0;
  }
  CCL_CHECK(open_queues(entries));
  if (!link_->flushes()) return {};
  for (const std::uint32_t n : used) {
    IbCompletions::Share& queue = queue_of(n);
    CCL_TRY(auto flush, IbFlush::make(ports_[n], queue.queue(), flushes, link_->tuning));
    queue.add(flush->number());
    flushes_[n] = std::move(flush);
  }
  return {};
}

template <class Notes>
Result<void> IbReceiver<Notes>::make_pairs(std::size_t c, const std::vector<IbPath>& paths,
                                           std::vector<IbPair>& planned) {
  const int slots = link_->edge.shape.slot_count;
  const Channel& channel = channels_[c];
  const std::size_t groups = channel.pairs / channel.parts;
  for (std::size_t n = 0; n < channel.pairs; ++n) {
    const auto [from, to] = paths[n % paths.size()];
    CCL_TRY(auto qp, make_qp(to, qp_size()));
    const IbPair mine{from, to, qp->number(), qp->psn()};
    planned.push_back(mine);
    pairs_.push_back({std::move(qp), int(c), mine, {}});
    // One receive for each of its next steps, up to the number that can be in flight.
    const Word group = Word(n / channel.parts), all = Word(groups);
    Word step = channel.received + (group + all - channel.received % all) % all;
    posted_receives_.push_back(0);
    for (std::size_t k = 0; k < std::size_t(slots) / groups; ++k, step += all) {
      if (const int code = post_receive(pairs_.size() - 1, step); code != 0) {
        return fail(Errc::network, fmt::format("receives cannot be posted on {} ({})",
                                               ports_[to].text(), std::strerror(code)));
      }
    }
  }
  return {};
}

template <class Notes>
Result<void> IbReceiver<Notes>::go(ControlReader& body) {
  if (body.get<std::uint32_t>() != round_ || state_ != State::making) return {};
  if (link_->is_closed_to_peer()) {
    end_pairs();
    return {};
  }
  const auto theirs = body.get_all<IbPair>();
  if (!body.good() || theirs.size() != pairs_.size()) {
    return fail(Errc::mismatch, "the sender's queue pairs are not those of the plan");
  }
  for (std::size_t n = 0; n < pairs_.size(); ++n) {
    Pair& pair = pairs_[n];
    pair.theirs = theirs[n];
    CCL_CHECK(pair.qp->connect(ports_[pair.mine.receiver_port], peers_ports_[pair.mine.sender_port],
                               pair.theirs.number, pair.theirs.psn, link_->tuning));
  }
  ControlWriter answer;
  answer.put(round_);
  line_.send(IbControlType::go, answer.body);
  state_ = State::running;
  link_->works();
  for (std::size_t c = 0; c < channels_.size(); ++c) show(c);  // data from before the failure
  return {};
}

template <class Notes>
void IbReceiver<Notes>::make_anew(const std::string& why) {
  state_ = State::making;
  set_deadline();
  ControlWriter body;
  body.put(round_);
  body.put_all(bad_paths_);
  body.put_all(std::vector<char>(why.begin(), why.end()));
  line_.send(IbControlType::broken, body.body);
}

template <class Notes>
bool IbReceiver<Notes>::rest_after_last() {
  for (std::size_t c = 0; c < last_steps_.size(); ++c) {
    const Channel& channel = channels_[c];
    const Word shown = link_->flushes() ? channel.flushed : channel.received;
    if (shown < last_steps_[c]) return false;
  }
  if (last_steps_.empty() || left_ || !line_.open()) return false;
  last_steps_.clear();
  for (IbCreditReturn& freed : link_->freed) freed.may = false;
  come_to_rest();
  line_.send(IbControlType::rest);
  return true;
}

std::shared_ptr<ProxyTask> make_ib_receiver(std::shared_ptr<IbLink> link) {
  if (link->transfers() != nullptr)
    return std::make_shared<IbReceiver<TransferNotes>>(std::move(link));
  return std::make_shared<IbReceiver<NoTransferNotes>>(std::move(link));
}

}  // namespace ccl::detail
