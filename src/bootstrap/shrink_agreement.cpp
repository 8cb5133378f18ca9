#include "bootstrap/shrink_agreement.hpp"

#include "bootstrap/core.hpp"
#include "net/socket.hpp"
#include <sys/socket.h>

namespace ccl::detail {

using namespace net;

namespace {
constexpr double ask_s = 2;  // for one rank to answer
}  // namespace

bool ShrinkAgreement::is_made(bool passed) {
  {
    const Lock lock = Engine::get().lock();
    if (passed && !doubted_) return made_ = true;
    doubted_ = true;
  }
  const Membership& members = core_.membership();
  const Hello hello{HelloKind::ask, members.ranks, 0, 0, members.me};
  bool made = false;
  for (int d = 1; d < members.ranks && !made; ++d) {
    const Member& other = members.members[size_t((members.rank + d) % members.ranks)];
    const auto until = Deadline::after(ask_s);
    const auto fd = auth_connect(Address{other.listen}, members.secret, bytes_of(hello), until,
                                 nullptr, Listener::has_started);
    char yes = 0;
    made = fd && recv_all(fd->get(), &yes, sizeof yes, until, nullptr) && yes == 1;
  }
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

void ShrinkAgreement::on_ask(const Lock&, const Accepted& one) {
  if (!made_) doubted_ = true;
  const char yes = made_ ? 1 : 0;
  ::send(one.fd.get(), &yes, sizeof yes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace ccl::detail
