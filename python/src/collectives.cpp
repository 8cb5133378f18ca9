#include "collectives.hpp"

#include <fmt/format.h>

#include "python/contents.hpp"

namespace ccl::python {
namespace {

/// Sets `done` and runs the call if its type is `T`.
template <class Op, class T>
bool run_if(const Collective<Op>& collective, const Call& call, Result<void>& result) {
  if (call.type != data_type_of<T>) return false;
  result = reduce<Op, T>(collective, call);
  return true;
}
template <class Op, class... Ts>
bool run_any(Types<Ts...>, const Collective<Op>& collective, const Call& call,
             Result<void>& result) {
  return (run_if<Op, Ts>(collective, call, result) || ...);
}
template <class... Ts>
std::string names(Types<Ts...>) {
  std::string all;
  ((all += (all.empty() ? "" : ", ") + std::string{name(data_type_of<Ts>)}), ...);
  return all;
}

}  // namespace

std::string Collectives::reduced_types() {
  return names(ReducedTypes{});
}

template <class Op>
Result<void> Collectives::reduce_by(const Call& call) {
  CCL_TRY(const auto* const collective, (get<Collective<Op>>()));
  Result<void> result;
  if (run_any(ReducedTypes{}, *collective, call, result)) return result;
  Error error{Errc::not_supported,
              fmt::format("{} has no code for elements of {} (this package was built for {}); "
                          "build it with CCL_PYTHON_TYPES=all",
                          Op::name, name(call.type), reduced_types())};
  error.rank = comm_.rank();
  return fail(std::move(error));
}
Result<void> Collectives::all_reduce(const Call& call) {
  return reduce_by<AllReduce>(call);
}
Result<void> Collectives::reduce_scatter(const Call& call) {
  return reduce_by<ReduceScatter>(call);
}
Result<void> Collectives::reduce(const Call& call) {
  return reduce_by<Reduce>(call);
}

Result<void> Collectives::all_gather(const Move& m) {
  CCL_TRY(const auto* const run, (get<Any<AllGather>>()));
  return (*run)(m.send, m.recv, m.count, m.type, m.stream);
}
Result<void> Collectives::all_to_all(const Move& m) {
  CCL_TRY(const auto* const run, (get<Any<AllToAll>>()));
  return (*run)(m.send, m.recv, m.count, m.type, m.stream);
}
Result<void> Collectives::broadcast(const Move& m, int root) {
  CCL_TRY(const auto* const run, (get<Any<Broadcast>>()));
  return (*run)(m.send, m.recv, m.count, m.type, root, m.stream);
}
Result<void> Collectives::gather(const Move& m, int root) {
  CCL_TRY(const auto* const run, (get<Any<Gather>>()));
  return (*run)(m.send, m.recv, m.count, m.type, root, m.stream);
}
Result<void> Collectives::scatter(const Move& m, int root) {
  CCL_TRY(const auto* const run, (get<Any<Scatter>>()));
  return (*run)(m.send, m.recv, m.count, m.type, root, m.stream);
}
Result<void> Collectives::all_to_all_v(const Move& m, std::span<const Index> send_counts,
                                       std::span<const Index> send_offsets,
                                       std::span<const Index> recv_counts,
                                       std::span<const Index> recv_offsets) {
  CCL_TRY(const auto* const run, (get<Any<AllToAllV>>()));
  return (*run)(m.send, send_counts, send_offsets, m.recv, recv_counts, recv_offsets, m.type,
                m.stream);
}
Result<void> Collectives::messages(std::span<const AnyMessage> messages, Stream stream) {
  CCL_TRY(const auto* const run, (get<Any<SendRecv>>()));
  return run->group(messages, stream);
}

}  // namespace ccl::python
