#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include <dlfcn.h>

namespace ccl::test {

/// A library of net_plug_in.cpp, of one version of the interface.
class TestNet {
 public:
  // Results of faults that are none of NCCL's.
  static constexpr int no_end = -1;    // the call has no effect, and no error
  static constexpr int held = -2;      // it returns when the fault is taken back
  static constexpr int busy = -3;      // every other call has no effect
  static constexpr int oversize = -4;  // `test` reports a gigabyte
  static constexpr int one_held = -5;  // as `held`, but later calls go well

  explicit TestNet(int version)
      : version_{version}, path_{std::string{CCL_TEST_NET} + std::to_string(version) + ".so"} {
    library_ = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error{::dlerror()};
  }
  static const std::vector<TestNet>& all() {
    static const std::vector<TestNet> versions{TestNet{12}, TestNet{11}, TestNet{10}, TestNet{9}};
    return versions;
  }
  int version() const { return version_; }
  const char* path() const { return path_.c_str(); }
  /// Lets a function give `result` after some calls that go well; 0: no more.
  void fail(const char* function, int after, int result) const {
    reinterpret_cast<void (*)(const char*, int, int)>(find("ccl_test_net_fault"))(function, after,
                                                                                  result);
  }
  /// Sets the kinds of memory that the devices take, by NCCL's numbers. Received data is in memory
  /// of GPUs only after a flush.
  void take_memory(int kinds) const {
    reinterpret_cast<void (*)(int)>(find("ccl_test_net_memory"))(kinds);
  }
  int calls(const char* function) const {
    return reinterpret_cast<int (*)(const char*)>(find("ccl_test_net_calls"))(function);
  }
  /// Objects of the plug-in that are not closed.
  int objects() const { return reinterpret_cast<int (*)()>(find("ccl_test_net_objects"))(); }

 private:
  void* find(const char* symbol) const { return ::dlsym(library_, symbol); }
  int version_;
  std::string path_;
  void* library_;
};

}  // namespace ccl::test
