// Answers of other ranks to the health service: their health and status, and what clients get.
#include <ccl/types/result.hpp>

#include <nlohmann/json.hpp>

#include "fuzz/fuzz.hpp"
#include "observe/health/gather.hpp"
#include "observe/health/render.hpp"

namespace ccl::fuzz {

using namespace detail;
using namespace detail::health;

namespace {
constexpr int ranks = 3;

std::vector<std::byte> answer(const RankHealth& health, const RankStatus& status) {
  return pack(health, ccl::detail::pack(status));
}
std::string text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
}  // namespace

void prepare() {}
void read(Input input) {
  Source source{input};
  const std::size_t first = source.take<std::uint16_t>();
  CommView view;
  view.name = "job";
  view.ranks.resize(ranks);
  // Rank 0 asks. The bytes are the answers of the two others.
  view.ranks[0].status.answered = true;
  view.ranks[0].status.rank = 0;
  for (int r = 1; r < ranks; ++r) {
    const auto bytes = text_of(source.take_bytes(r == 1 ? first : input.size()));
    const auto* const begin = reinterpret_cast<const std::byte*>(bytes.data());
    const std::vector<std::byte> theirs{begin, begin + bytes.size()};
    read_status(theirs, r, ranks, view.ranks[std::size_t(r)]);
    const RankView& read = view.ranks[std::size_t(r)];
    if (!read.status.answered) continue;
    demand(read.status.rank == r, "a status of another rank");
    RankView again;
    read_status(answer(read.health, read.status), r, ranks, again);
    demand(again.status.answered, "what is written cannot be read");
    demand(again.health.error == read.health.error, "the error is lost");
  }
  conclude(view);
  Snapshot snapshot;
  snapshot.communicators.push_back(std::move(view));
  const std::string json = status_json(snapshot);
  demand(nlohmann::json::accept(json), "no JSON");
  for (const bool verbose : {false, true}) {
    demand(!status_text(snapshot, verbose).empty(), "no text");
  }
  (void)diagnostics_text(snapshot);
}

std::vector<std::string> seeds() {
  RankHealth health;
  health.is_up = 1;
  health.calls[0] = 7;
  RankStatus status;
  status.answered = true;
  status.rank = 1;
  status.host = "node7";
  status.waits = {2, 4};
  status.called = 3;
  Operation op;
  op.number = 3;
  op.state = OpState::running;
  std::string_view{"all_reduce"}.copy(op.what, sizeof op.what);
  status.operations = {op};
  RankStatus other = status;
  other.rank = 2;
  other.operations.front().count = 5;
  RankHealth failed = health;
  failed.error = int(Errc::peer_lost);
  failed.lost_peer = 1;
  const std::string one = text(answer(health, status)), two = text(answer(failed, other));
  return {bytes_of(std::uint16_t(one.size())) + one + two, bytes_of(std::uint16_t(0)) + two};
}

}  // namespace ccl::fuzz
