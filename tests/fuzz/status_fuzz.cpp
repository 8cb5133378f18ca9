// Statuses of ranks: each rank's account of its operations.
#include <ccl/comm/report.hpp>

#include "fuzz/fuzz.hpp"

namespace ccl::fuzz {

using namespace detail;

namespace {
constexpr int ranks = 4;
}  // namespace

void prepare() {}
void read(Input input) {
  RankStatus status;
  if (!unpack(input, status)) return;
  const auto bytes = pack(status);
  RankStatus again;
  demand(unpack(bytes, again), "what is written cannot be read");
  demand(again.operations.size() == status.operations.size(), "operations are lost");
  // The communicator drops a status that names other peers than its ranks.
  const auto is_peer = [](int peer) { return peer >= -1 && peer < ranks; };
  bool fits = is_peer(status.waits.peer);
  for (const WireSteps& of : status.steps) fits = fits && is_peer(of.peer);
  if (!fits) return;
  std::vector<RankStatus> all(ranks, status);
  for (int r = 0; r < ranks; ++r) all[std::size_t(r)].rank = r;
  all[0].waits.peer = -1;
  all[3] = {};
  all[3].rank = 3;
  (void)diagnose(std::move(all), 1).text();
}

std::vector<std::string> seeds() {
  RankStatus status;
  status.rank = 1;
  status.host = "node7";
  status.rendezvous = "finalize";
  status.waits = {0, 4};
  Operation op;
  op.number = 3;
  op.state = OpState::running;
  std::string_view{"all_reduce"}.copy(op.what, sizeof op.what);
  status.operations = {op, op};
  status.steps = {{0, 0, true, 4, 3}, {2, 1, false, 4, 4}};
  const auto text = [](const RankStatus& of) {
    const auto bytes = pack(of);
    return std::string{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  };
  return {text(status), text({})};
}

}  // namespace ccl::fuzz
