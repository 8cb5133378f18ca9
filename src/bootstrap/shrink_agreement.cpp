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
    auto socket = auth_connect(Address{other.listen}, members.secret, bytes_of(hello), until,
                               nullptr, Listener::has_started);
    std::byte yes{0};
    made = socket && recv_all(*socket, {&yes, 1}, until, nullptr) && yes == std::byte{1};
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

void ShrinkAgreement::on_ask(const Lock&, Accepted& one) {
  if (!made_) doubted_ = true;
  const std::byte yes{made_ ? std::uint8_t{1} : std::uint8_t{0}};
  (void)one.socket.send({&yes, 1});
}

}  // namespace ccl::detail
