#pragma once

#include <memory>

namespace ccl::detail {

/// Number of forks between this process and the one that loaded the library.
int forks_before();

/// Owner of an object that only the process that made it may free. A forked child never frees its
/// copy: the child lacks its threads, its locks may be held, and its sockets and shared memory
/// belong to the parent.
template <class T>
std::shared_ptr<T> left_alone_by_forks(T* made) {
  return {made, [process = forks_before()](T* owned) {
            if (forks_before() == process) delete owned;
          }};
}

}  // namespace ccl::detail
