// Closes a library immediately after ccl in it was used, when threads of ccl can be about to end.
#include <thread>

#include <dlfcn.h>

int main(int, char** arguments) {
  for (int round = 0; round < 20; ++round) {
    void* const library = ::dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return 3;
    const auto meet_and_part = reinterpret_cast<int (*)()>(::dlsym(library, "meet_and_part"));
    if (meet_and_part == nullptr) return 4;
    int code = 0;
    // Thread-local data of this program's first thread keeps a library loaded too.
    std::thread{[&] { code = meet_and_part(); }}.join();
    if (code != 0) return code;
    ::dlclose(library);
  }
  return ::dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD) != nullptr ? 0 : 5;
}
