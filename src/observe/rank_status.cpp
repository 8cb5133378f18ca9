#include <ccl/comm/report.hpp>

#include <algorithm>
#include <cstring>

namespace ccl {

const Operation* Account::running() const {
  for (const Operation& op : operations) {
    if (op.state == OpState::running) return &op;
  }
  return nullptr;
}
const Operation* Account::find(Word number) const {
  for (const Operation& op : operations) {
    if (op.number == number) return &op;
  }
  return nullptr;
}

namespace detail {
namespace {

constexpr std::size_t most_items = 64;

struct Header {
  char magic[4] = {'c', 'c', 'l', 'a'};
  std::int32_t rank = -1, pid = 0, waits_peer = -1;
  std::uint32_t operations = 0, steps = 0;
  Word waits_step = 0, now_ns = 0, called = 0;
  char host[64] = {}, meeting[96] = {};
};

template <class T>
void append(std::vector<std::byte>& to, const T* from, std::size_t count) {
  const std::size_t at = to.size();
  to.resize(at + count * sizeof(T));  // g++ 12 sees an overflow in `insert`
  if (count > 0) std::memcpy(to.data() + at, from, count * sizeof(T));
}

}  // namespace

std::vector<std::byte> pack(const Account& account) {
  Header header;
  header.rank = account.rank;
  header.pid = account.pid;
  header.waits_peer = account.waits.peer;
  header.waits_step = account.waits.step;
  header.now_ns = account.now_ns;
  header.called = account.called;
  account.host.copy(header.host, sizeof header.host - 1);
  account.meeting.copy(header.meeting, sizeof header.meeting - 1);
  std::vector<WireSteps> steps = account.steps;
  // Where they do not all fit: the wires of the peer that is waited for.
  std::stable_partition(steps.begin(), steps.end(),
                        [&](const WireSteps& s) { return s.peer == account.waits.peer; });
  header.operations = std::uint32_t(std::min(account.operations.size(), most_items));
  header.steps = std::uint32_t(std::min(steps.size(), most_items));
  std::vector<std::byte> bytes;
  append(bytes, &header, 1);
  append(bytes, account.operations.data(), header.operations);
  append(bytes, steps.data(), header.steps);
  return bytes;
}

bool unpack(std::span<const std::byte> bytes, Account& account) {
  Header header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes = bytes.subspan(sizeof header);
  if (std::memcmp(header.magic, Header{}.magic, sizeof header.magic) != 0 ||
      header.operations > most_items || header.steps > most_items ||
      bytes.size() != header.operations * sizeof(Operation) + header.steps * sizeof(WireSteps)) {
    return false;
  }
  account.rank = header.rank;
  account.answered = true;
  account.pid = header.pid;
  account.waits = {header.waits_peer, header.waits_step};
  account.now_ns = header.now_ns;
  account.called = header.called;
  account.host.assign(header.host, strnlen(header.host, sizeof header.host));
  account.meeting.assign(header.meeting, strnlen(header.meeting, sizeof header.meeting));
  account.operations.resize(header.operations);
  account.steps.resize(header.steps);
  const std::size_t of_operations = header.operations * sizeof(Operation);
  if (of_operations != 0) std::memcpy(account.operations.data(), bytes.data(), of_operations);
  if (header.steps != 0) {
    std::memcpy(account.steps.data(), bytes.data() + of_operations,
                header.steps * sizeof(WireSteps));
  }
  for (Operation& op : account.operations) {
    op.what[sizeof op.what - 1] = op.type[sizeof op.type - 1] = op.redop[sizeof op.redop - 1] = 0;
    if (op.state < OpState::queued || op.state > OpState::failed) return false;
  }
  return true;
}

}  // namespace detail
}  // namespace ccl
