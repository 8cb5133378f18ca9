#include "proxy/transfer_log.hpp"

#include <algorithm>
#include <utility>

#include "proxy/transfer_listener.hpp"

namespace ccl::detail {

/// Words of a transfer. `number` is one more than that of the transfer, and 0 while it is written.
struct TransferLog::Entry {
  std::atomic<Word> number{0}, step, bytes, posted, begun, ended;
  std::atomic<Word> ends;     // composition << 32 | peer
  std::atomic<Word> carrier;  // network << 32 | stream << 17 | channel << 1 | sends
};

namespace {
constexpr auto relaxed = std::memory_order_relaxed;
std::atomic<int> min_size{0};
constexpr Word low(Word word, int bits) {
  return word & ((Word{1} << bits) - 1);
}
}  // namespace

TransferLog::TransferLog(int size)
    : entries_{std::make_unique<Entry[]>(std::size_t(size))}, size_{Word(size)} {}

TransferLog::~TransferLog() = default;

int TransferLog::network(std::string_view name) {
  const std::lock_guard lock{mutex_};
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found != names_.end()) return int(found - names_.begin());
  names_.emplace_back(name);
  return int(names_.size()) - 1;
}

void TransferLog::set_listener(std::shared_ptr<TransferListener> listener) {
  const std::lock_guard lock{mutex_};
  listener_ = std::move(listener);
}

std::shared_ptr<TransferListener> TransferLog::listener() const {
  const std::lock_guard lock{mutex_};
  return listener_;
}

void TransferLog::tell(ProxyTurn to, int tasks) const noexcept {
  if (const auto known = listener()) known->turned(to, tasks);
}

void TransferLog::keep_at_least(int size) {
  min_size.store(size, relaxed);
}

int TransferLog::least() {
  return min_size.load(relaxed);
}

void TransferLog::add(const TransferLine& line, const TransferTimes& times, int network) {
  const Word number = next_.fetch_add(1, relaxed);
  Entry& entry = entries_[number % size_];
  entry.number.store(0, relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // a reader of what follows sees the 0
  entry.step.store(times.step, relaxed);
  entry.bytes.store(times.bytes, relaxed);
  entry.posted.store(times.posted, relaxed);
  entry.begun.store(times.begun, relaxed);
  entry.ended.store(times.ended, relaxed);
  entry.ends.store(Word(unsigned(line.composition)) << 32 | Word(unsigned(line.peer)), relaxed);
  entry.carrier.store(
      Word(network) << 32 | Word(line.stream) << 17 | Word(line.channel) << 1 | Word{line.sends},
      relaxed);
  entry.number.store(number + 1, std::memory_order_release);
}

std::vector<TransferLog::Kept> TransferLog::latest() const {
  std::vector<std::pair<Kept, Word>> found;
  const Word end = next_.load(relaxed), first = end < size_ ? 0 : end - size_;
  for (Word number = first; number < end; ++number) {
    const Entry& entry = entries_[number % size_];
    if (entry.number.load(std::memory_order_acquire) != number + 1) continue;
    Kept kept;
    kept.times = {entry.step.load(relaxed), entry.bytes.load(relaxed), entry.posted.load(relaxed),
                  entry.begun.load(relaxed), entry.ended.load(relaxed)};
    const Word ends = entry.ends.load(relaxed), carrier = entry.carrier.load(relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.number.load(relaxed) != number + 1) continue;
    kept.line = {int(low(ends, 32)), int(ends >> 32), int(low(carrier >> 1, 16)),
                 int(low(carrier >> 17, 15)), low(carrier, 1) != 0};
    found.emplace_back(std::move(kept), carrier >> 32);
  }
  std::vector<Kept> all;
  const std::lock_guard lock{mutex_};
  for (auto& [kept, network] : found) {
    if (network < names_.size()) kept.network = names_[network];
    all.push_back(std::move(kept));
  }
  return all;
}

}  // namespace ccl::detail
