#include "wires.cuh"

int main() {
  using namespace ccl;
  return test::run_suites<Ring, LL, WarpLanes>("Ring LL");
}
