// expect: ccl: the type has no hook; see `Hooks` in <ccl/comm/hooks.hpp>
#include <ccl/hooked.hpp>

struct Misspelled {
  void on_calls(const ccl::CallEvent&) const {}
};
template class ccl::Hooked<ccl::Communicator, Misspelled>;
