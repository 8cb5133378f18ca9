// expect: ccl: a session's group must be a LaneGroup
#include <ccl/device/session.hpp>

struct Threads {};
void kernel(const ccl::Team& team) {
  ccl::TeamSession<Threads> session{Threads{}, team, 0, 1};
}
