#include "wires.cuh"

int main() {
  using namespace ccl;
  return test::run_suites<Ring, LL, detail::WarpLanes>("Ring LL");
}
