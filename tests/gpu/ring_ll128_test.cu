#include "wires.cuh"

int main() {
  using namespace ccl;
  return test::run_suites<Ring, LL128, detail::WarpLanes>("Ring LL128");
}
