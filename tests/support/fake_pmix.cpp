// A libpmix.so.2 of one session: rank PMIX_RANK of two. It reports the process that ends the
// session to the descriptor CCL_TEST_PMIX_ENDS.
#include <cstdlib>
#include <cstring>

#include "bootstrap/pmix_abi.hpp"
#include <unistd.h>

using namespace ccl::detail::net::pmix;

extern "C" {

int PMIx_Init(Proc* me, void*, std::size_t) {
  std::strcpy(me->space, "a job");
  me->rank = std::uint32_t(std::atoi(std::getenv("PMIX_RANK")));
  return success;
}
int PMIx_Finalize(const void*, std::size_t) {
  const pid_t process = ::getpid();
  const int fd = std::atoi(std::getenv("CCL_TEST_PMIX_ENDS"));
  return ::write(fd, &process, sizeof process) == sizeof process ? success : 1;
}
int PMIx_Put(std::uint8_t, const char*, Value*) {
  return success;
}
int PMIx_Commit() {
  return success;
}
int PMIx_Fence(const Proc*, std::size_t, const void*, std::size_t) {
  return success;
}
int PMIx_Get(const Proc*, const char*, const void*, std::size_t, Value** value) {
  *value = static_cast<Value*>(std::calloc(1, sizeof(Value)));
  (*value)->type = type_uint32;
  (*value)->number = 2;
  return success;
}

}  // extern "C"
