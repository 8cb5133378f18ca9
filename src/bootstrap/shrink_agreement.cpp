#include "bootstrap/shrink_agreement.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "base/exceptions.hpp"
#include "base/thread.hpp"
#include "bootstrap/core.hpp"
#include "net/socket.hpp"
#include <sys/socket.h>

namespace ccl::detail {

using namespace net;

namespace {
constexpr double ask_s = 2;           // for one rank to answer
constexpr size_t asked_at_once = 16;  // ranks, of which some may be stopped and never answer

/// Returns true if `other` has the new communicator. A failure of `found` ends the question.
bool has_it(const Membership& members, const Member& other, const Status& found) {
  const Hello hello{HelloKind::ask, members.ranks, 0, 0, members.me};
  const auto until = Deadline::after(ask_s);
  auto socket = auth_connect(Address{other.listen}, members.secret, bytes_of(hello), until, &found,
                             Listener::has_started);
  std::byte yes{0};
  return socket && recv_all(*socket, {&yes, 1}, until, &found) && yes == std::byte{1};
}

/// Asks all other ranks, several at once. Returns true as soon as one has the new communicator.
bool any_has_it(const Membership& members) {
  Status found;  // its failure ends the other questions
  std::atomic<int> next{1};
  const auto ask = [&] {
    for (int d = next++; d < members.ranks && found.ok(); d = next++) {
      const Member& other = members.members[size_t((members.rank + d) % members.ranks)];
      if (has_it(members, other, found)) found.set(brief_error(Errc::aborted));
    }
  };
  std::array<std::thread, asked_at_once - 1> helpers;
  const int wanted = std::min(int(helpers.size()), members.ranks - 2);
  for (int h = 0; h < wanted; ++h) {
    auto thread = own_thread("a shrink", [&] { (void)completes(ask); });
    if (!thread) break;  // this thread asks all of them
    helpers[size_t(h)] = *std::move(thread);
  }
  (void)completes(ask);
  for (std::thread& helper : helpers) {
    if (helper.joinable()) helper.join();
  }
  return !found.ok();
}
}  // namespace

bool ShrinkAgreement::is_made(bool passed) {
  {
    const Lock lock = Engine::get().lock();
    if (passed && !doubted_) return made_ = true;
    doubted_ = true;
  }
  const bool made = any_has_it(core_.membership());
  const Lock lock = Engine::get().lock();
  return made_ = made;
}

// The error of the other ranks can arrive a moment later than their answers.
Result<void> ShrinkAgreement::failure(Result<void> passed) {
  if (!passed) return passed;
  Lock lock = Engine::get().lock();
  core_.waits().sleep(lock, ask_s, [&] { return !core_.status().ok(); });
  CCL_CHECK(core_.status().result());
  return core_.membership().failed(
      Errc::timed_out,
      "the other ranks gave up when the new communicator was nearly there (see their "
      "errors); call shrink again");
}

void ShrinkAgreement::on_ask(const Lock&, Accepted& one) {
  if (!made_) doubted_ = true;
  const std::byte yes{made_ ? std::uint8_t{1} : std::uint8_t{0}};
  (void)one.socket.send({&yes, 1});
}

}  // namespace ccl::detail
