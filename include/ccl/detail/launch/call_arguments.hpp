#pragma once

#include <ccl/algo/chunks.hpp>

namespace ccl::detail {

/// Checked arguments of a call over wires or over peer memory. The buffers are the user's.
template <class R>
struct CallArguments {
  R reduction;
  const void* input;
  void* output;
  Layout layout;
  int root;
};

}  // namespace ccl::detail
