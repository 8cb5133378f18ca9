// A plug-in that contains ccl is closed, or its program ends, while threads of ccl run. Each case
// is a process of its own, because the library stays loaded.
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "support/catch.hpp"
#include "support/processes.hpp"
#include <dlfcn.h>

using namespace ccl::test;

namespace {

using Function = int (*)();

void* open_plug_in() {
  void* const library = ::dlopen(CCL_TEST_PLUG_IN, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::fprintf(stderr, "%s\n", ::dlerror());
  return library;
}
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}
/// Calls the function on a thread that ends: data of a thread keeps a library loaded, too.
int call(void* library, const char* name) {
  const Function function = find(library, name);
  if (function == nullptr) return 90;
  int code = 0;
  std::thread{[&] { code = function(); }}.join();
  return code;
}

/// Runs `body` in a process. Returns its status.
template <class Body>
int in_process(Body&& body, double limit_s = 60) {
  const pid_t pid = start_process(body);
  int status = 0;
  if (!wait_until([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }, limit_s)) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
    return 1000;  // it hangs
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 2000 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("a plug-in with ccl is opened, used and closed many times") {
  CHECK(in_process([] {
          Holdings first{};
          for (int round = 0; round < 30; ++round) {
            void* const library = open_plug_in();
            if (library == nullptr) return 80;
            if (const int code = call(library, "use_and_destroy"); code != 0) return code;
            ::dlclose(library);
            if (round == 0) {
              sleep_s(0.5);
              first = Holdings::of_this_process();
            }
          }
          const bool same =
              wait_until([&] { return Holdings::of_this_process().within(first); }, 20);
          return same ? 0 : 81;
        }) == 0);
}

TEST_CASE("a plug-in that is closed while its communicators live stays, and they go on") {
  CHECK(in_process([] {
          void* const library = open_plug_in();
          if (library == nullptr) return 80;
          if (const int code = call(library, "use_and_keep"); code != 0) return code;
          const Function use = find(library, "use_kept");
          ::dlclose(library);
          sleep_s(0.1);  // its threads run
          if (::dlopen(CCL_TEST_PLUG_IN, RTLD_NOW | RTLD_NOLOAD) == nullptr) return 82;
          int code = 0;
          std::thread{[&] { code = use(); }}.join();
          return code;
        }) == 0);
}

TEST_CASE("a program exits while communicators of a plug-in live, and while one of them waits") {
  for (const bool closes : {false, true}) {
    for (const bool waits : {false, true}) {
      for (int round = 0; round < 5; ++round) {
        const int status = in_process([&] {
          void* const library = open_plug_in();
          if (library == nullptr) return 80;
          if (const int code = call(library, "use_and_keep"); code != 0) return code;
          if (waits && call(library, "wait_for_ever") != 0) return 83;
          if (closes) ::dlclose(library);
          std::exit(0);  // destroys static objects, also those of the plug-in
        });
        INFO("closed: " << closes << ", a thread waits: " << waits << ", round " << round);
        CHECK(status == 0);
      }
    }
  }
}
