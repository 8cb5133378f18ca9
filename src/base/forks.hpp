#pragma once

#include <memory>

namespace ccl::detail {

/// How many forks lie between this process and the first that asked.
int forks_before();

/// Owns what only the process that made it may free. A forked child has a copy of it that is left
/// alone for ever: its threads did not come along, nobody gives its locks back, and what it would
/// say goodbye over are the parent's sockets and shared memory.
template <class T>
std::shared_ptr<T> left_alone_by_forks(T* made) {
  return {made, [process = forks_before()](T* owned) {
            if (forks_before() == process) delete owned;
          }};
}

}  // namespace ccl::detail
