// expect: A whole line is one store of each lane.
#include <ccl/proto/lane_group.hpp>
#include <ccl/proto/ll128.hpp>

// Lines land whole, but four lanes would need two stores each for one.
struct WholeLines : ccl::detail::AnyMemory {
  static constexpr bool lines_land_whole = true;
};
struct FourLanes {
  static constexpr int width = 4;
  using Memory = WholeLines;
  int rank() const;
  void sync() const;
  bool all(bool vote) const;
};
static_assert(ccl::LaneGroup<FourLanes>);
static_assert(ccl::Protocol<ccl::LL128, FourLanes>);
