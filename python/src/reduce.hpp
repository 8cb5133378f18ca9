#pragma once

#include <ccl/auto.hpp>
#include <ccl/collective.hpp>
#include <ccl/element/data_type.hpp>

#include <string_view>

namespace ccl::python {

/// User's functor as its extension exports it: python/ccl/_functor.py writes that source. The
/// extension stays loaded until the process ends.
struct LoadedFunctor {
  void (*combine)();  ///< an `A (*)(A, A)`, with `A` the type that elements are added up in
  const char* label;  ///< its name and a hash of its source, compared between ranks
};

/// Arguments of a reducing call, with the type and the reduction as values.
struct Call {
  const void* send = nullptr;
  void* recv = nullptr;
  Index count = 0;  ///< elements of `type`
  DataType type = DataType::uint8;
  std::string_view op;  ///< "sum", "prod", "min", "max" or "avg"; not read with a functor
  int root = 0;         ///< only read by `Reduce`
  Stream stream{};
  const LoadedFunctor* functor = nullptr;
};

/// Runs `call`, whose type is `T`. Compiled once for each operation and type: reduce.cpp.
template <class Op, class T>
Result<void> reduce(const Collective<Op>& collective, const Call& call);

}  // namespace ccl::python
