#include "wires.cuh"

int main() {
  using namespace ccl;
  return test::run_suites<Ring, Simple, detail::BlockLanes<128>>("Ring Simple");
}
