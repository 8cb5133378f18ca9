// Functors keep their values when they leave a library that hides its symbols.
#include "functor.hpp"

int main() {
  ccl::RedOp ccls{"sum"}, own{"sum"};
  give_functors(&ccls, &own);
  const auto scaled = ccls.as<ccl::PreMulSum>();
  const auto by = own.as<Scaled>();
  if (!scaled || scaled->value<double>() != 0.5) return 1;
  return by && by->by == 3 ? 0 : 2;
}
