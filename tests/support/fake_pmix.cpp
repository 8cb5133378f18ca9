// A libpmix.so.2 of one session: rank PMIX_RANK of two. It reports the process that ends the
// session to the descriptor FAKE_PMIX_ENDS. The function that FAKE_PMIX_STUCK names does
// not return, as if the server were stopped; a key may follow it.
#include <cstdlib>
#include <cstring>
#include <string>

#include "bootstrap/launch/pmix_abi.hpp"
#include <unistd.h>

using namespace ccl::detail::net::pmix;

namespace {

void stick(const std::string& at) {
  const char* const stuck = std::getenv("FAKE_PMIX_STUCK");
  while (stuck != nullptr && at.starts_with(stuck)) ::pause();
}

}  // namespace

extern "C" {

int PMIx_Init(Proc* me, void*, std::size_t) {
  stick("PMIx_Init");
  std::strcpy(me->space, "a job");
  me->rank = std::uint32_t(std::atoi(std::getenv("PMIX_RANK")));
  return success;
}
int PMIx_Finalize(const void*, std::size_t) {
  stick("PMIx_Finalize");
  const pid_t process = ::getpid();
  const int fd = std::atoi(std::getenv("FAKE_PMIX_ENDS"));
  return ::write(fd, &process, sizeof process) == sizeof process ? success : 1;
}
int PMIx_Put(std::uint8_t, const char*, Value*) {
  stick("PMIx_Put");
  return success;
}
int PMIx_Commit() {
  stick("PMIx_Commit");
  return success;
}
int PMIx_Fence(const Proc*, std::size_t, const void*, std::size_t) {
  stick("PMIx_Fence");
  return success;
}
int PMIx_Get(const Proc*, const char* key, const void*, std::size_t, Value** value) {
  stick(std::string{"PMIx_Get "} + key);
  *value = static_cast<Value*>(std::calloc(1, sizeof(Value)));
  (*value)->type = type_uint32;
  (*value)->number = 2;
  return success;
}

}  // extern "C"
