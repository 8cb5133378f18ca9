#include "observe/health/snapshot.hpp"

#include <algorithm>
#include <utility>

#include "base/nccl_result.hpp"
#include "observe/diagnosis.hpp"

namespace ccl::detail::health {

int CommView::missing() const {
  const auto answered = [](const RankView& of) { return of.status.answered; };
  return int(ranks.size()) - int(std::ranges::count_if(ranks, answered));
}

void conclude(CommView& communicator) {
  std::vector<RankStatus> statuses;
  std::vector<int> departed;
  for (RankView& of : communicator.ranks) {
    if (of.departed) {
      departed.push_back(int(statuses.size()));
      of.dead = true;
    }
    statuses.push_back(of.status);
    const int lost = of.status.answered ? of.health.lost_peer : -1;
    if (lost < 0 || lost >= int(communicator.ranks.size())) continue;
    RankView& other = communicator.ranks[std::size_t(lost)];
    if (!other.status.answered) other.dead = true;
  }
  if (!communicator.asked) {
    communicator.diagnosis = {};
    communicator.diagnosis.summary = "the ranks were not asked";
    return;
  }
  communicator.diagnosis =
      detail::diagnose(std::move(statuses), communicator.asking, std::move(departed));
  communicator.diagnosis.ranks.clear();
}

int nccl_error(const RankHealth& health) {
  return nccl_result(Errc(health.error));
}

}  // namespace ccl::detail::health
