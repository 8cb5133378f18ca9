#include "wires.cuh"

int main() {
  using namespace ccl;
  return test::run_suites<Tree, Simple, BlockLanes<128>>("Tree Simple");
}
