// A program that hides its symbols shares these variables with the shared runtime.
#include <ccl/comm/unique_id.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/lanes/host_memory.hpp>

#include <dlfcn.h>

int main() {
  const bool runtime = ccl::UniqueId::from_string("").has_value();  // it is linked
  const auto found = [](const char* symbol) { return ::dlsym(RTLD_DEFAULT, symbol); };
  const bool one =
      found("_ZN3ccl6detail7crowdedE") == &ccl::detail::crowded &&
      found("_ZN3ccl6detail23program_has_device_codeE") == &ccl::detail::program_has_device_code;
  return !runtime && one ? 0 : 1;
}
