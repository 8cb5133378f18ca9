#include "connect/idle_closer.hpp"

#include <ccl/comm/log.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "base/exceptions.hpp"
#include "base/thread.hpp"
#include "comm/state.hpp"
#include "connect/idle_message.hpp"
#include "connect/idle_pairs.hpp"

namespace ccl::detail {

namespace {
constexpr double looks = 4;  // in the time after which a pair is idle
}  // namespace

IdleCloser* IdleCloser::of(const CommState& state) {
  return static_cast<IdleCloser*>(state.idle_closer.get());
}

Result<void> IdleCloser::start(CommState& state) {
  if (state.idle_closer) return {};
  auto made = std::make_shared<IdleCloser>(state);
  IdleCloser* const at = made.get();
  CCL_TRY(made->thread_, own_thread("idle connections", [at] { at->serve(); }));
  // The communicator ends the closer, and with it the listener, before the bootstrap.
  state.rendezvous.bootstrap()->set_message_listener(
      idle_tag, [at](int peer, std::span<const std::byte> text) {
        const std::lock_guard lock{at->mutex_};
        at->messages_.emplace_back(peer, std::vector<std::byte>(text.begin(), text.end()));
        at->changed_.notify_one();
      });
  state.idle_closer = std::move(made);
  return {};
}

IdleCloser::~IdleCloser() {
  if (!thread_.joinable()) return;
  state_.rendezvous.bootstrap()->set_message_listener(idle_tag, {});
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

double IdleCloser::period_s() const {
  double least = 0;
  for (const IdlePairs* one : pairs_) {
    const double period = one->idle_s() / looks;
    if (least == 0 || period < least) least = period;
  }
  return least;
}

void IdleCloser::add(IdlePairs* pairs) {
  const std::lock_guard users{pairs_mutex_};
  pairs_.push_back(pairs);
  const std::lock_guard lock{mutex_};
  period_s_ = period_s();
  changed_.notify_one();
}

void IdleCloser::remove(IdlePairs* pairs) {
  const std::lock_guard users{pairs_mutex_};
  std::erase(pairs_, pairs);
  const std::lock_guard lock{mutex_};
  period_s_ = period_s();
}

void IdleCloser::serve() noexcept {
  const LogRank named{state_.identity.rank()};
  const auto served = completion_of([this] { serve_until_stopped(); });
  if (!served) state_.status.set(served.error());  // calls that wait for an answer end by it
}

void IdleCloser::serve_until_stopped() {
  using Clock = std::chrono::steady_clock;
  auto looked = Clock::now();
  std::unique_lock lock{mutex_};
  while (!stop_) {
    if (!messages_.empty()) {
      const Message message = std::move(messages_.front());
      messages_.pop_front();
      lock.unlock();
      take(message);
      lock.lock();
      continue;
    }
    if (period_s_ == 0) {
      changed_.wait(lock);
      continue;
    }
    const auto next = looked + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(period_s_));
    if (Clock::now() < next) {
      changed_.wait_until(lock, next);
      continue;
    }
    lock.unlock();
    look();
    looked = Clock::now();
    lock.lock();
  }
}

void IdleCloser::look() {
  if (!state_.status.ok() || state_.rendezvous.finalized()) return;
  const std::lock_guard users{pairs_mutex_};
  for (IdlePairs* one : pairs_) one->look();
}

void IdleCloser::take(const Message& message) {
  const auto& [peer, text] = message;
  std::string why;
  const auto read = read_idle_message(text, peer, state_.identity.rank(), why);
  if (!read) {
    (void)state_.rendezvous.break_off(peer, why);
    return;
  }
  if (!state_.status.ok()) return;
  const std::lock_guard users{pairs_mutex_};
  const auto found = std::find_if(pairs_.begin(), pairs_.end(), [&](const IdlePairs* one) {
    return one->composition() == read->composition;
  });
  if (found != pairs_.end()) return (*found)->take(peer, *read);
  // This rank has dropped the composition, so the other may keep its ends or drop them, too.
  if (read->kind != IdleMessage::Kind::request) return;
  IdleMessage answer = *read;
  answer.kind = IdleMessage::Kind::refused;
  (void)state_.rendezvous.bootstrap()->send(peer, idle_tag, &answer, Index{sizeof answer});
}

}  // namespace ccl::detail
