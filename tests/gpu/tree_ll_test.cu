#include "wires.cuh"

int main() {
  using namespace ccl;
  return test::run_suites<Tree, LL, detail::WarpLanes>("Tree LL");
}
