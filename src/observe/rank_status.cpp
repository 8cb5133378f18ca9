#include <ccl/comm/report.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/text.hpp"

namespace ccl {

const Operation* RankStatus::running() const {
  const Operation* messages = nullptr;
  for (const Operation& op : operations) {
    if (op.state != OpState::running) continue;
    if (op.number != 0) return &op;
    if (messages == nullptr) messages = &op;
  }
  return messages;
}
const Operation* RankStatus::find(Word number) const {
  for (const Operation& op : operations) {
    if (op.number == number) return &op;
  }
  return nullptr;
}

namespace detail {
namespace {

constexpr std::size_t max_items = 64;

struct Header {
  char magic[4] = {'c', 'c', 'l', 'a'};
  std::int32_t rank = -1, pid = 0, waits_peer = -1;
  std::uint32_t operations = 0, steps = 0;
  Word waits_step = 0, now_ns = 0, called = 0, network_bytes = 0, asks_about = 0,
       rendezvous_number = 0;
  double proxy_stuck_s = 0;
  char host[64] = {}, rendezvous[96] = {}, shortage[128] = {};
  char elsewhere[192] = {}, elsewhere_host[64] = {};
  std::int32_t elsewhere_pid = 0, unused = 0;
};

template <std::size_t size>
void put(char (&to)[size], const std::string& from) {
  from.copy(to, size - 1);
}
template <std::size_t size>
std::string get(const char (&from)[size]) {
  return on_one_line({from, strnlen(from, size)});
}

template <class T>
void append(std::vector<std::byte>& to, const T* from, std::size_t count) {
  const std::size_t at = to.size();
  to.resize(at + count * sizeof(T));  // g++ 12 sees an overflow in `insert`
  if (count > 0) std::memcpy(to.data() + at, from, count * sizeof(T));
}

}  // namespace

std::vector<std::byte> pack(const RankStatus& rank_status) {
  Header header;
  header.rank = rank_status.rank;
  header.pid = rank_status.pid;
  header.waits_peer = rank_status.waits.peer;
  header.waits_step = rank_status.waits.step;
  header.now_ns = rank_status.now_ns;
  header.called = rank_status.called;
  header.network_bytes = rank_status.network_bytes;
  header.asks_about = rank_status.asks_about;
  header.rendezvous_number = rank_status.rendezvous_number;
  header.proxy_stuck_s = rank_status.proxy_stuck_s;
  put(header.host, rank_status.host);
  put(header.rendezvous, rank_status.rendezvous);
  put(header.shortage, rank_status.shortage);
  put(header.elsewhere, rank_status.elsewhere.text);
  put(header.elsewhere_host, rank_status.elsewhere.peer_host);
  header.elsewhere_pid = rank_status.elsewhere.peer_pid;
  std::vector<WireSteps> steps = rank_status.steps;
  // If not all wires fit, those of the peer that is waited for come first.
  std::stable_partition(steps.begin(), steps.end(),
                        [&](const WireSteps& s) { return s.peer == rank_status.waits.peer; });
  header.operations = std::uint32_t(std::min(rank_status.operations.size(), max_items));
  header.steps = std::uint32_t(std::min(steps.size(), max_items));
  std::vector<std::byte> bytes;
  append(bytes, &header, 1);
  append(bytes, rank_status.operations.data(), header.operations);
  append(bytes, steps.data(), header.steps);
  return bytes;
}

bool unpack(std::span<const std::byte> bytes, RankStatus& rank_status) {
  Header header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes = bytes.subspan(sizeof header);
  if (std::memcmp(header.magic, Header{}.magic, sizeof header.magic) != 0 ||
      header.operations > max_items || header.steps > max_items ||
      bytes.size() != header.operations * sizeof(Operation) + header.steps * sizeof(WireSteps)) {
    return false;
  }
  rank_status.rank = header.rank;
  rank_status.answered = true;
  rank_status.pid = header.pid;
  rank_status.waits = {header.waits_peer, header.waits_step};
  rank_status.now_ns = header.now_ns;
  rank_status.called = header.called;
  rank_status.network_bytes = header.network_bytes;
  rank_status.asks_about = header.asks_about;
  rank_status.rendezvous_number = header.rendezvous_number;
  // Not a number, and negative ones, mean nothing.
  rank_status.proxy_stuck_s = header.proxy_stuck_s > 0 ? std::min(header.proxy_stuck_s, 1e9) : 0;
  rank_status.host = get(header.host);
  rank_status.rendezvous = get(header.rendezvous);
  rank_status.shortage = get(header.shortage);
  rank_status.elsewhere = {get(header.elsewhere), get(header.elsewhere_host), header.elsewhere_pid};
  rank_status.operations.resize(header.operations);
  rank_status.steps.resize(header.steps);
  const std::size_t of_operations = header.operations * sizeof(Operation);
  if (of_operations != 0) std::memcpy(rank_status.operations.data(), bytes.data(), of_operations);
  // A bool with another value than 0 and 1 must not be read.
  for (std::size_t n = 0; n < header.steps; ++n) {
    const std::byte* const step = bytes.data() + of_operations + n * sizeof(WireSteps);
    if (std::to_integer<unsigned>(step[offsetof(WireSteps, sends)]) > 1) return false;
    if (std::to_integer<unsigned>(step[offsetof(WireSteps, proxied)]) > 1) return false;
  }
  if (header.steps != 0) {
    std::memcpy(rank_status.steps.data(), bytes.data() + of_operations,
                header.steps * sizeof(WireSteps));
  }
  for (Operation& op : rank_status.operations) {
    op.what[sizeof op.what - 1] = op.type[sizeof op.type - 1] = op.redop[sizeof op.redop - 1] = 0;
    if (op.state < OpState::queued || op.state > OpState::failed) return false;
  }
  return true;
}

Word asks_about(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header) return 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  return std::memcmp(header.magic, Header{}.magic, sizeof header.magic) == 0 ? header.asks_about
                                                                             : 0;
}

}  // namespace detail
}  // namespace ccl
