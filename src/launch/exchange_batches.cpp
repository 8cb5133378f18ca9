#include <ccl/detail/exchange/batches.hpp>

#include <algorithm>
#include <cstddef>

namespace ccl::detail {
namespace {

int filled_messages(const MessageList& side) {
  const auto all = side.all();
  return int(std::count_if(all.begin(), all.end(), [](const Message& m) { return m.bytes > 0; }));
}
int longest_run(const MessageList& side) {
  std::size_t most = 0;
  for (std::size_t p = 0; p < side.size(); ++p) most = std::max(most, side[p].size());
  return int(most);
}
MessageList without_empty(const MessageList& side) {
  MessageList filled{int(side.size())};
  for (std::size_t p = 0; p < side.size(); ++p) {
    for (const Message& m : side[p]) {
      if (m.bytes > 0) filled.add(int(p), m);
    }
  }
  return filled;
}

}  // namespace

ExchangeBatches::ExchangeBatches(const MessageTable& table, const RingPosition& ring)
    : table_{&table}, ring_{ring} {
  const int messages = filled_messages(table.sends) + filled_messages(table.recvs);
  one_launch_ = messages <= ExchangeWork::max_messages;
  if (!one_launch_) {
    // An empty message may lack its other end, so it must not count among those of its peer.
    filled_.emplace(without_empty(table.sends), without_empty(table.recvs));
    table_ = &*filled_;
  }
  rounds_ = std::max(longest_run(table_->sends), longest_run(table_->recvs));
}

ExchangeBatches::AtDistance ExchangeBatches::at_distance(int distance) const {
  return {table_->sends[std::size_t(ring_.ahead(distance))],
          table_->recvs[std::size_t(ring_.behind(distance))]};
}

ExchangeBatches::End ExchangeBatches::end_of_batch() const {
  if (one_launch_) return {rounds_, 0};
  int count = 0;
  End end{nth_, distance_};
  for (; end.nth < rounds_; ++end.nth, end.distance = 0) {
    for (; end.distance < ring_.ranks; ++end.distance) {
      const AtDistance at = at_distance(end.distance);
      count += int(end.nth < int(at.to.size())) + int(end.nth < int(at.from.size()));
      if (count > ExchangeWork::max_messages) return end;
    }
  }
  return end;
}

void ExchangeBatches::add(ExchangeWork& work, std::span<const Message> of, int peer, bool sends,
                          int distance, const End& end) const {
  const int first = nth_ + int(distance < distance_);
  const int last = std::min(end.nth + int(distance < end.distance), int(of.size()));
  ExchangeWork::Visit visit{peer, cuda::std::uint8_t(work.messages), 0, sends};
  for (int n = first; n < last; ++n) {
    if (of[std::size_t(n)].bytes < 1) continue;
    work.message[work.messages++] = of[std::size_t(n)];
    ++visit.count;
  }
  if (visit.count == 0) return;
  if (distance == 0) {
    work.own[sends ? 0 : 1] = visit;
  } else {
    work.visit[work.visits++] = visit;
  }
}

Index ExchangeBatches::next(ExchangeWork& work) {
  work.visits = work.messages = 0;
  work.own[0] = work.own[1] = {};
  const End end = end_of_batch();
  for (int d = 0; d < ring_.ranks; ++d) {
    const AtDistance at = at_distance(d);
    add(work, at.to, ring_.ahead(d), true, d, end);
    add(work, at.from, ring_.behind(d), false, d, end);
  }
  nth_ = end.nth;
  distance_ = end.distance;
  Index longest = 0;
  for (int m = 0; m < work.messages; ++m) longest = std::max(longest, work.message[m].bytes);
  return longest;
}

}  // namespace ccl::detail
