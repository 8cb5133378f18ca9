#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// Forked processes that share a page, for tests of several ranks.
namespace ccl::test {

using Clock = std::chrono::steady_clock;

inline double seconds(Clock::duration d) {
  return std::chrono::duration<double>(d).count();
}
inline void sleep_s(double s) {
  std::this_thread::sleep_for(std::chrono::duration<double>(s));
}

/// A `T` that all processes forked from here on see.
template <class T>
class Shared {
 public:
  Shared() {
    void* at = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
      std::perror("mmap");
      std::abort();
    }
    value_ = ::new (at) T{};
  }
  ~Shared() { munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() const { return value_; }
  T& operator*() const { return *value_; }

 private:
  T* value_;
};

/// Runs `body()` in a process of its own; its exit status is what `body` returns.
template <class Body>
pid_t start_process(Body&& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int status = body();
  std::fflush(nullptr);
  _exit(status);
}

/// Polls until `done()`; false if that takes longer than `limit_s`.
template <class Done>
bool wait_until(Done&& done, double limit_s) {
  const auto start = Clock::now();
  while (!done()) {
    if (seconds(Clock::now() - start) > limit_s) return false;
    sleep_s(0.002);
  }
  return true;
}

/// Waits for all of them, then kills those that are late. True if each ended by itself with 0 or is
/// the one excepted.
inline bool reap(std::vector<pid_t> pids, double limit_s, pid_t except = 0) {
  bool ok = true;
  const auto reap_ready = [&] {
    std::erase_if(pids, [&](pid_t pid) {
      int status = 0;
      if (waitpid(pid, &status, WNOHANG) == 0) return false;
      if (pid != except && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) ok = false;
      return true;
    });
    return pids.empty();
  };
  if (wait_until(reap_ready, limit_s)) return ok;
  for (const pid_t pid : pids) kill(pid, SIGKILL);
  for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
  return false;
}

inline std::vector<std::string> list_dir(const std::string& path) {
  std::vector<std::string> names;
  if (DIR* dir = opendir(path.c_str())) {
    while (const dirent* entry = readdir(dir)) {
      if (entry->d_name[0] != '.') names.push_back(entry->d_name);
    }
    closedir(dir);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Memory segments with a name of ccl's, of which there should be none. NCCL's have names, and
/// other programs make some at any time.
inline std::vector<std::string> own_segments() {
  auto names = list_dir("/dev/shm");
  std::erase_if(names, [](const std::string& name) {
    return name.find("ccl") == std::string::npos || name.starts_with("nccl");
  });
  return names;
}

/// Resources of a process that a library can leak.
struct Holdings {
  std::size_t files, threads;
  static Holdings of_this_process() {
    return {list_dir("/proc/self/fd").size(), list_dir("/proc/self/task").size()};
  }
  bool within(const Holdings& other) const {
    return files <= other.files && threads <= other.threads;
  }
};

}  // namespace ccl::test
