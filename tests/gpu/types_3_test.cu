#include "types.cuh"

int main() {
  return ccl::test::run_types<3, 8>();
}
