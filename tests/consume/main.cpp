#include <ccl/types/error.hpp>
#include <ccl/types/result.hpp>
#include <ccl/version.hpp>

#include <string_view>

int main() {
  const ccl::Result<int> r = ccl::fail(ccl::Errc::timed_out, "no answer");
  return ccl::name(r.error().code) == "timed_out" && ccl::version == std::string_view("0.1.0") ? 0
                                                                                               : 1;
}
